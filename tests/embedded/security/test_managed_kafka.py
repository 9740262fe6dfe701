"""The settings in docs/managed-kafka.md, run as printed against an embedded cluster with TLS and the same login.

Only the address is another. The authority of the cluster takes the place of the system's authorities.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from aiokafka_lite import EmbeddedCluster, Producer
from aiokafka_lite.embedded import Security
from tests.pure.documents import ROOT, blocks

PAGE = ROOT / "docs" / "managed-kafka.md"
SECTIONS = {
    block.title.removeprefix("part of a program: "): block.text
    for block in blocks(PAGE)
    if block.title.startswith("part of a program")
}
USER, PASSWORD = "service-user", "service-password"
TOKEN = "signed-for-eu-central-1"


def login(text: str) -> Security:
    """Return the listener that these settings are for."""
    if '"SSL"' in text:
        return Security("SSL", client_auth="required")
    mechanism = re.findall(r'sasl_mechanism="([A-Z0-9-]+)"', text)
    if mechanism == ["OAUTHBEARER"]:
        return Security("SASL_SSL", mechanisms=mechanism, check_token=check_token)
    user = "$ConnectionString" if "$ConnectionString" in text else USER
    return Security("SASL_SSL", users={user: PASSWORD}, mechanisms=mechanism)


def check_token(token: str) -> dict[str, object]:
    if token != TOKEN:
        raise ValueError("another token")
    return {"sub": "role"}


@pytest.mark.parametrize("service", SECTIONS)
async def test_a_producer_with_the_printed_settings_logs_in(
    service: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_USER", USER)
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    signer = SimpleNamespace(generate_auth_token=lambda region: (f"signed-for-{region}", 900_000))
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer.MSKAuthTokenProvider", signer)
    text = SECTIONS[service]
    async with EmbeddedCluster(brokers=1, security=login(text)) as cluster:
        settings = cluster.client_settings()
        shutil.copy(settings["ssl_cafile"], "ca.pem")
        if "service.cert" in text:
            for name in ("service.cert", "service.key"):  # the cluster has both in one file
                shutil.copy(settings["ssl_certfile"], name)
        if "ssl_cafile" not in text:
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        (address,) = re.findall(r'"([\w.-]+:\d+)"', text)
        names: dict[str, object] = {}
        exec(compile(text.replace(address, settings["bootstrap_servers"]), service, "exec"), names)
        producer = names["producer"]
        assert isinstance(producer, Producer)
        async with producer:
            written = await producer.send("orders", b"two coffees")
        assert written.offset == 0


def test_every_service_of_the_table_has_a_section() -> None:
    page = PAGE.read_text(encoding="utf-8")
    heads = re.findall(r"^## (.+)$", page, re.MULTILINE)
    named = re.findall(r"^\| \[([^]]+)\]", page, re.MULTILINE)
    assert ["Imitations for tests", *named, "If it does not connect"] == heads
    for head in named:
        assert any(title.startswith(head) for title in SECTIONS), head
