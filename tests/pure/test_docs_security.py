"""The properties files in docs/security.md are valid and have the shown settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from aiokafka_lite.settings.properties import producer_settings, read_properties
from tests.pure.documents import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def settings_of(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the settings of a properties file on the page, with its certificate files in a temporary directory."""
    (text,) = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for path in re.findall(r"file:(/[\w/.-]+)", text):
        elsewhere = tmp_path / Path(path).name
        elsewhere.write_text(f"content of {elsewhere.name}\n", encoding="utf-8")
        text = text.replace(path, str(elsewhere))
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    file = tmp_path / f"client.{kind}"
    file.write_text(text, encoding="utf-8")
    return producer_settings(read_properties(file))


def test_the_properties_file_logs_in_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of("properties", tmp_path, monkeypatch)
    assert settings.pop("sasl_password").encode() == b"hunter2"
    assert settings == {
        "bootstrap_servers": "kafka.example:9093",
        "security_protocol": "SASL_SSL",
        "ssl_cafile": "content of ca.pem",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "alice",
        "compression": "zstd",
    }


def test_the_toml_file_has_two_servers_and_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of("toml", tmp_path, monkeypatch)
    assert settings.pop("sasl_oauth_token_provider")().encode() == b"content of kafka-token"
    assert settings == {
        "bootstrap_servers": "kafka-1.example:9093,kafka-2.example:9093",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
    }
