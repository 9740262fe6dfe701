"""Logins by Kerberos (GSSAPI), with a KDC of their own and a real broker: the embedded one accepts no tickets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.admin import Admin
from aiokafka_lite.errors import AuthenticationError, KafkaError, KafkaTimeout
from aiokafka_lite.settings.properties import client_settings, read_properties
from tests.end_to_end.conftest import missing
from tests.real.jvm import JvmKafka, Listener, java_problem, run_tool, write_properties
from tests.real.kdc import REALM, Kdc, kdc_problem
from tests.real.releases import NEWEST
from tests.waiting import DEADLINE, error_of

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("kerberos")]

SESSION_MILLISECONDS = 3000

ALICE = f"alice@{REALM}"

_KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required"
_topics = count(1)


class Realm(NamedTuple):
    """A broker that accepts tickets, its KDC, and the keytab of the user alice."""

    kafka: JvmKafka
    kdc: Kdc
    keytab: Path


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    lacking = None if find_spec("gssapi") else "install the extra gssapi"
    problem = lacking or kdc_problem() or java_problem()
    if problem is not None:
        missing(f"Kerberos is not tested: {problem}")
    kdc = Kdc(tmp_path_factory.mktemp("kdc"))
    kdc.start()
    keytab = kdc.add("kafka/localhost")
    login = f'{_KERBEROS} useKeyTab=true storeKey=true keyTab="{keytab}" principal="kafka/localhost@{REALM}";'
    settings = {}
    for name in ("kerberos", "short"):
        settings[f"listener.name.{name}.sasl.enabled.mechanisms"] = "GSSAPI"
        settings[f"listener.name.{name}.gssapi.sasl.jaas.config"] = login
        settings[f"listener.name.{name}.sasl.kerberos.service.name"] = "kafka"
    settings["listener.name.short.gssapi.connections.max.reauth.ms"] = str(SESSION_MILLISECONDS)
    listeners = {"KERBEROS": Listener("SASL_PLAINTEXT", "localhost"), "SHORT": Listener("SASL_PLAINTEXT", "localhost")}
    java = [f"-Djava.security.krb5.conf={kdc.krb5_conf}"]
    kafka = JvmKafka(NEWEST, settings=settings, listeners=listeners, options=java)
    kafka.start()
    yield Realm(kafka, kdc, kdc.add("alice"))
    kafka.stop()
    kdc.stop()


@pytest.fixture(autouse=True)
def in_the_realm(realm: Realm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The variables of this realm, and a ticket cache of the test's own, which is empty."""
    for name, value in {**realm.kdc.environment, "KRB5CCNAME": f"FILE:{tmp_path}/tickets"}.items():
        monkeypatch.setenv(name, value)


def port(realm: Realm, listener: str = "KERBEROS", host: str = "localhost") -> dict[str, Any]:
    return {
        "bootstrap_servers": f"{host}:{realm.kafka.ports[listener]}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
    }


def by_keytab(realm: Realm, listener: str = "KERBEROS", **settings: Any) -> dict[str, Any]:
    return {**port(realm, listener), "sasl_kerberos_keytab": realm.keytab, **settings}


async def kinit(keytab: Path, principal: str) -> None:
    """Put a ticket into the cache of this process, as a user does with a password."""
    process = await asyncio.create_subprocess_exec("kinit", "-k", "-t", str(keytab), principal)
    assert await process.wait() == 0


async def log_in(settings: dict[str, Any]) -> None:
    async with Admin(**settings, api_timeout=DEADLINE) as admin:
        await admin.cluster.describe()


async def refused(settings: dict[str, Any]) -> AuthenticationError:
    """Return the error of a login that is refused at once."""
    with pytest.raises(AuthenticationError) as caught:
        async with asyncio.timeout(DEADLINE):
            await log_in(settings)
    return caught.value


async def test_a_client_with_a_keytab_writes_reads_and_administers(realm: Realm) -> None:
    settings, topic = by_keytab(realm), f"kerberos-{next(_topics)}"
    async with Producer(**settings) as producer:
        await producer.send_many(topic, [b"%d" % number for number in range(100)])
    async with Consumer(topics=[topic], group_id=topic, **settings) as consumer:
        assert [(await anext(consumer)).value for _ in range(100)] == [b"%d" % number for number in range(100)]
    async with Admin(**settings) as admin:
        assert topic in [listed.name for listed in await admin.topics.list()]


async def test_a_user_logs_in_with_the_ticket_of_kinit(realm: Realm) -> None:
    await kinit(realm.keytab, ALICE)
    await log_in(port(realm))
    await log_in({**port(realm), "sasl_kerberos_principal": ALICE})


async def test_one_properties_file_serves_kafkas_tools_and_this_client(
    realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": f'{_KERBEROS} useKeyTab=true storeKey=true keyTab="{realm.keytab}" principal="{ALICE}";',
    }
    path = write_properties(tmp_path / "client.properties", settings)
    servers = f"localhost:{realm.kafka.ports['KERBEROS']}"
    topic = f"kerberos-{next(_topics)}"
    converted: dict[str, Any] = client_settings(read_properties(path))
    async with Producer(servers, **converted) as producer:
        await producer.send(topic, b"value")
    # Another test of this process may have set the variable for a Spark that lives on: set it back, do not delete it.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={realm.kdc.krb5_conf}")
    listed = await asyncio.to_thread(run_tool, NEWEST, "topics", servers, "--list", "--command-config", str(path))
    assert topic in listed.split()


async def test_sessions_are_renewed_under_load_and_nothing_is_lost(
    realm: Realm, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "aiokafka_lite.net")
    topic = f"kerberos-{next(_topics)}"

    def logged(text: str) -> list[str]:
        return [record.getMessage() for record in caplog.records if text in record.getMessage()]

    sent = 0
    async with Producer(**by_keytab(realm, "SHORT")) as producer:
        await producer.send(topic, b"")
        async with asyncio.timeout(DEADLINE):
            while len(logged("logged in to")) < 3 * len(logged("is open")):
                await producer.send_many(topic, [b"value"] * 50)
                sent += 50
                await asyncio.sleep(0.05)
        last = await producer.send(topic, b"")
    assert last.offset == sent + 1
    assert logged("lost the") == []


async def test_a_ticket_is_renewed_from_the_keytab(realm: Realm) -> None:
    keytab = realm.kdc.add("brief", "-maxlife", '"3 seconds"')
    settings = by_keytab(realm, sasl_kerberos_keytab=keytab)
    loop = asyncio.get_running_loop()
    first = loop.time()
    while loop.time() < first + 7.0:  # more than two tickets
        await log_in(settings)


async def test_without_a_ticket_the_error_says_what_to_do(realm: Realm) -> None:
    error = await refused(port(realm))
    assert "has no ticket for kafka@localhost: " in str(error)
    assert str(error).endswith("; run kinit, or set sasl_kerberos_keytab")


async def test_an_expired_ticket_of_a_user_is_refused_until_kinit(realm: Realm) -> None:
    keytab = realm.kdc.add("short-lived", "-maxlife", '"2 seconds"')
    errors: list[KafkaError] = []

    async def until_let_in() -> None:
        while True:  # a busy machine may let a ticket expire before the login
            await kinit(keytab, "short-lived")
            with suppress(AuthenticationError):
                return await log_in(port(realm))

    async def until_refused() -> None:
        while not errors:
            try:
                await log_in(port(realm))
            except AuthenticationError as error:
                errors.append(error)

    async with asyncio.timeout(DEADLINE):
        await until_let_in()
        await until_refused()
    assert str(errors[0]).endswith("; run kinit, or set sasl_kerberos_keytab")
    await kinit(realm.keytab, ALICE)
    await log_in(port(realm))


async def test_a_principal_that_the_kdc_does_not_know_is_named(realm: Realm) -> None:
    error = await refused(by_keytab(realm, sasl_kerberos_principal=f"mallory@{REALM}"))
    assert "mallory" in str(error)


async def test_a_broker_that_is_no_principal_of_the_kdc_is_named_with_what_to_check(realm: Realm) -> None:
    error = await refused(by_keytab(realm, sasl_kerberos_service_name="kavka"))
    assert "has no ticket for kavka@localhost: " in str(error)
    assert "check sasl_kerberos_service_name" in str(error)


async def test_a_keytab_with_an_old_key_is_refused(realm: Realm) -> None:
    keytab = realm.kdc.add("carol")
    realm.kdc.change_key("carol")
    error = await refused(by_keytab(realm, sasl_kerberos_keytab=keytab))
    assert "export the keytab again" in str(error)


async def test_a_broker_with_another_key_refuses_the_ticket(realm: Realm) -> None:
    realm.kdc.add("other/localhost")
    error = await refused(by_keytab(realm, sasl_kerberos_service_name="other"))
    assert "refused the login by GSSAPI" in str(error)


async def test_a_client_waits_for_a_kdc_that_is_down(realm: Realm) -> None:
    keytab = realm.kdc.add("dave")
    settings = by_keytab(realm, sasl_kerberos_keytab=keytab)
    realm.kdc.stop()
    try:
        error = await error_of(lambda timeout: Admin(**settings, api_timeout=timeout).start(), "KDC")
        assert isinstance(error, KafkaTimeout)
        assert "check the KDC of the realm in krb5.conf" in str(error)
        login = asyncio.create_task(log_in(settings))
        await asyncio.sleep(0)
    finally:
        realm.kdc.start()
    await asyncio.wait_for(login, DEADLINE)
