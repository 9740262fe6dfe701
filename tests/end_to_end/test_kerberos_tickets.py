"""Tickets for logins by Kerberos: a KDC and its failures. The broker is the embedded one, which accepts no tickets."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from aiokafka_lite.admin import Admin
from aiokafka_lite.embedded import EmbeddedCluster, Security
from aiokafka_lite.errors import AuthenticationError, KafkaError, KafkaTimeout
from aiokafka_lite.net.kerberos import Kerberos, KerberosContext
from tests.end_to_end.conftest import missing
from tests.real.kdc import REALM, Kdc, kdc_problem
from tests.waiting import DEADLINE, error_of

pytestmark = pytest.mark.xdist_group("kerberos")

LENGTH = 4
"""The bytes of the length before each message of Kerberos over TCP."""

SERVICE_UNAVAILABLE = 29
"""KDC_ERR_SVC_UNAVAILABLE, on the wire."""


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    problem = kdc_problem() if find_spec("gssapi") else "install the extra gssapi"
    if problem is not None:
        missing(f"Kerberos is not tested: {problem}")
    kdc = Kdc(tmp_path_factory.mktemp("kdc"))
    kdc.start()
    kdc.add("kafka/localhost")
    kdc.add("alice")
    yield kdc
    kdc.stop()


@pytest.fixture
def keytab(kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A keytab of the test's own, so that no ticket is in its cache, and the variables of the realm."""
    for name, value in {**kdc.environment, "KRB5CCNAME": f"FILE:{tmp_path}/tickets"}.items():
        monkeypatch.setenv(name, value)
    return kdc.keytab("alice").rename(tmp_path / "alice.keytab")


@pytest.fixture
async def settings(keytab: Path) -> AsyncIterator[dict[str, Any]]:
    async with EmbeddedCluster(security=Security("SASL_PLAINTEXT", users={"alice": "alice-secret"})) as cluster:
        port = cluster.client_settings()["bootstrap_servers"].rpartition(":")[2]
        yield {
            "bootstrap_servers": f"localhost:{port}",
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "GSSAPI",
            "sasl_kerberos_keytab": keytab,
        }


def configure(kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kdc_line: str) -> None:
    """Write a krb5.conf with this line instead of the KDC's line."""
    conf = tmp_path / "krb5.conf"
    conf.write_text(kdc.krb5_conf.read_text().replace(f"kdc = 127.0.0.1:{kdc.port}", kdc_line))
    monkeypatch.setenv("KRB5_CONFIG", str(conf))


def der(tag: int, *content: bytes) -> bytes:
    """Return an element of DER with less than 128 bytes."""
    joined = b"".join(content)
    assert len(joined) < 128
    return bytes([tag, len(joined)]) + joined


def error_message(code: int) -> bytes:
    """Return the KRB-ERROR of a KDC (RFC 4120, section 5.9.1), with its length for TCP."""
    name = der(0x30, der(0xA0, b"\x02\x01\x02"), der(0xA1, der(0x30, der(0x1B, b"krbtgt"), der(0x1B, REALM.encode()))))
    error = der(
        0x7E,
        der(
            0x30,
            der(0xA0, b"\x02\x01\x05"),  # the version
            der(0xA1, b"\x02\x01\x1e"),  # the type of the message
            der(0xA4, der(0x18, b"20260101000000Z")),
            der(0xA5, b"\x02\x01\x00"),
            der(0xA6, der(0x02, bytes([code]))),
            der(0xA9, der(0x1B, REALM.encode())),
            der(0xAA, name),
        ),
    )
    return len(error).to_bytes(LENGTH, "big") + error


async def test_many_clients_share_the_tickets_of_a_keytab_that_all_request_at_once(keytab: Path) -> None:
    for attempt in range(30):
        path = str(shutil.copy(keytab, f"{keytab}-{attempt}"))
        clients = [Kerberos(None, path, None) for _ in range(4)]
        exchanges = await asyncio.gather(*[client.exchange("localhost") for client in clients * 2])
        assert all(exchange.begin() for exchange in exchanges)


async def test_the_path_of_a_keytab_may_have_a_colon(keytab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(keytab.parent)
    keytab.rename("alice:1.keytab")
    assert (await Kerberos(None, "alice:1.keytab", None).exchange("localhost")).begin()


async def test_a_message_that_is_not_the_brokers_is_refused_by_name(keytab: Path) -> None:
    exchange = await Kerberos(None, str(keytab), None).exchange("localhost")
    with pytest.raises(AuthenticationError, match=r"^Kerberos does not accept the message of kafka@localhost: "):
        exchange.received(b"guess")


async def test_a_keytab_without_mit_kerberos_says_what_to_do(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gssapi.creds.rcred_cred_store", None)  # as in the build for macOS
    with pytest.raises(AuthenticationError, match="sasl_kerberos_keytab needs MIT Kerberos; run kinit instead, or"):
        await Admin(**settings, api_timeout=DEADLINE).start()


async def test_a_realm_whose_kdc_cannot_be_found_is_waited_for(
    kdc: Kdc, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(kdc, tmp_path, monkeypatch, "")
    error = await error_of(lambda timeout: Admin(**settings, api_timeout=timeout).start(), "realm")
    assert isinstance(error, KafkaTimeout)
    assert "; name the KDC of the realm in krb5.conf, or check DNS" in str(error)


async def test_a_kdc_that_is_busy_is_asked_again(
    kdc: Kdc, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(int.from_bytes(await reader.readexactly(LENGTH), "big"))
        writer.write(error_message(SERVICE_UNAVAILABLE))
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as busy:
        configure(kdc, tmp_path, monkeypatch, f"kdc = 127.0.0.1:{busy.sockets[0].getsockname()[1]}")
        error = await error_of(lambda timeout: Admin(**settings, api_timeout=timeout).start(), "not available")
    assert isinstance(error, KafkaTimeout)


async def test_a_kdc_that_does_not_answer_does_not_block_the_event_loop(
    kdc: Kdc, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        configure(kdc, tmp_path, monkeypatch, f"kdc = 127.0.0.1:{silent.getsockname()[1]}")
        login = asyncio.create_task(Admin(**settings, api_timeout=DEADLINE).start())
        connection, _ = await asyncio.wait_for(loop.sock_accept(silent), DEADLINE)
        with connection:
            request = await asyncio.wait_for(loop.sock_recv(connection, LENGTH), DEADLINE)
            rest = int.from_bytes(request, "big")
            while rest:
                rest -= len(await asyncio.wait_for(loop.sock_recv(connection, rest), DEADLINE))
            with pytest.raises(BlockingIOError):  # if the library had blocked the loop, it would have closed its end
                connection.recv(1)
            login.cancel()
            with pytest.raises(asyncio.CancelledError):
                await login


def test_an_error_that_a_step_has_deferred_is_explained() -> None:
    class Deferred(Exception):
        pass

    class Context:
        @property
        def complete(self) -> bool:
            raise Deferred("late")

    def explained(error: Exception) -> KafkaError:
        return AuthenticationError(f"explained: {error}")

    with pytest.raises(AuthenticationError, match="explained: late"):
        _ = KerberosContext(Context(), explained, Deferred).complete
