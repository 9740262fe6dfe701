"""`aiokafka-lite broker` with TLS and logins."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokafka_lite.cli.broker import NewTopic, listen_settings, parse_topic, security
from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.testing.ports import free_port
from tests.end_to_end.terminal import broker, run


async def test_a_client_connects_with_the_properties_that_a_secured_broker_writes(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    options = ("--port", "0", "--sasl-user", 'alice:a "quoted" \\ secret', "--tls", "--client-config", str(path))
    async with broker(*options, "--sasl-mechanism", "SCRAM-SHA-256", "--topic", "orders") as (_, servers):
        listed = await run("topics", "list", "-c", str(path))
        assert "orders" in listed.text, listed.errors
        refused = await run("topics", "list", "-b", servers, "-X", "security.protocol=SSL", "--timeout", "5")
        assert refused.status == 1
    assert path.stat().st_mode & 0o777 == 0o600


async def test_the_properties_are_in_ascii_which_java_reads_like_python(tmp_path: Path) -> None:
    path, password = tmp_path / "client.properties", "p\u00e4ss \u65e5 \U0001f600 \\u"
    options = ("--port", "0", "--sasl-user", f"alice:{password}", "--client-config", str(path), "--topic", "orders")
    async with broker(*options):
        listed = await run("topics", "list", "-c", str(path))
        assert "orders" in listed.text, listed.errors
    content = path.read_bytes()
    assert content.isascii()
    assert rb'password="p\u00e4ss \u65e5 \ud83d\ude00 ' in content


async def test_a_broker_has_the_settings_and_the_id_that_the_options_give() -> None:
    options = ("--port", "0", "--config", "num.partitions=4", "--config", "log.retention.hours=2")
    async with broker(*options, "--first-node-id", "0", "--topic", "orders") as (_, servers):
        described = await run("configs", "describe", "broker", "0", "-b", servers)
        values = {row[0]: row[1] for row in described.rows if len(row) > 1}
        assert (values["num.partitions"], values["log.retention.hours"], values["node.id"]) == ("4", "2", "0")
        listed = await run("topics", "list", "-b", servers)
        assert ["orders", "4"] in [row[:2] for row in listed.rows]


@pytest.mark.parametrize(
    "options, protocol",
    [
        ((False, "none", [], []), "PLAINTEXT"),
        ((True, "required", [], []), "SSL"),
        ((False, "none", ["alice:secret"], []), "SASL_PLAINTEXT"),
        ((True, "none", [], ["OAUTHBEARER"]), "SASL_SSL"),
    ],
)
def test_the_options_choose_the_security_protocol(
    options: tuple[bool, str, list[str], list[str]], protocol: str
) -> None:
    assert security(*options).protocols == (protocol,)


def test_a_user_without_a_password_is_an_error_that_quotes_nothing() -> None:
    """The one word may be the password."""
    with pytest.raises(ConfigurationError, match="sasl-user must be NAME:PASSWORD, got a string of 5 characters"):
        security(False, "none", ["alice"], [])


async def test_with_a_super_user_other_clients_need_acls() -> None:
    async with broker("--port", "0", "--super-user", "admin") as (_, servers):
        refused = await run("acls", "list", "-b", servers)
    assert refused.status == 1
    assert "CLUSTER_AUTHORIZATION_FAILED" in refused.errors


async def test_a_file_of_the_user_is_not_overwritten_by_the_properties_of_a_client(tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    path.write_text("years of work")
    refused = await run("broker", "--port", "0", "--client-config", str(path))
    assert refused.status == 2
    assert "is a file that this command has not written; give another name" in refused.errors
    assert path.read_text() == "years of work"


async def test_the_properties_of_an_earlier_broker_are_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    for topic in ("orders", "bills"):
        async with broker("--port", "0", "--client-config", str(path), "--topic", topic):
            path.chmod(0o644)
            assert topic in (await run("topics", "list", "-c", str(path))).text
    async with broker("--port", "0", "--client-config", str(path)):
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("options", "is_verbose"), [((), False), (("-v",), True)])
async def test_the_broker_says_why_it_refused_a_login_and_with_v_what_it_does(
    tmp_path: Path, options: tuple[str, ...], is_verbose: bool
) -> None:
    (tmp_path / "password").write_text("hunter2")
    arguments = ("--port", "0", "--sasl-user", "alice:alice-secret", "--topic", "orders", *options)
    async with broker(*arguments) as (process, servers):
        login = ("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN")
        login += ("-X", "sasl.username=alice", "-X", f"sasl.password=file:{tmp_path / 'password'}")
        assert (await run("topics", "list", "-b", servers, *login, "--timeout", "5")).status == 1
        process.terminate()
        _, errors = await process.communicate()
    text = errors.decode()
    assert "aiokafka-lite: node 1 closed the connection of client" in text
    assert "its login was refused" in text
    assert "hunter2" not in text
    assert ("created topic orders with 1 partition" in text) is is_verbose


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("orders", NewTopic("orders", 7, 1, {})),
        ("orders:3", NewTopic("orders", 3, 1, {})),
        ("orders:3:2:retention.ms=5", NewTopic("orders", 3, 2, {"retention.ms": "5"})),
        (
            "orders:retention.ms=5:cleanup.policy=compact,delete",
            NewTopic("orders", 7, 1, {"retention.ms": "5", "cleanup.policy": "compact,delete"}),
        ),
        (
            "orders:1:leader.replication.throttled.replicas=0:1,1:2:segment.ms=9",
            NewTopic("orders", 1, 1, {"leader.replication.throttled.replicas": "0:1,1:2", "segment.ms": "9"}),
        ),
    ],
)
def test_a_topic_has_partitions_replicas_and_settings(text: str, topic: NewTopic) -> None:
    assert parse_topic(text, 7) == topic


@pytest.mark.parametrize("text", [":3", "orders:x", "orders:1:2:3", "orders:", "a=b", "orders:-1", "orders:1:=5"])
def test_another_form_of_a_topic_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="topic must be NAME"):
        parse_topic(text, 1)


async def test_a_topic_is_created_with_its_settings() -> None:
    async with broker("--port", "0", "--topic", "orders:2:retention.ms=60000") as (_, servers):
        described = await run("topics", "describe", "orders", "-b", servers)
    assert ["orders", "retention.ms", "60000", "topic"] in described.rows
    refused = await run("broker", "--port", "0", "--topic", "orders:2:retention=60000")
    assert refused.status == 2
    assert "topic 'orders' cannot be created: unknown setting 'retention'" in refused.errors


async def test_clients_are_told_the_advertised_address() -> None:
    port = free_port()
    arguments = ("--port", "0", "--host", "0.0.0.0", "--advertised", f"kafka.example:{port}", "--brokers", "2")
    async with broker(*arguments) as (process, servers):
        assert servers == f"kafka.example:{port},kafka.example:{port + 1}"
        process.terminate()


async def test_a_broker_on_every_address_is_reached_by_the_advertised_one() -> None:
    port = free_port()
    async with broker("--port", str(port), "--host", "0.0.0.0", "--advertised", "localhost") as (_, servers):
        assert servers == f"localhost:{port}"
        listed = await run("topics", "list", "-b", servers)
        assert listed.status == 0, listed.errors


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--host", "0.0.0.0"), "--host 0.0.0.0 requires --advertised"),
        (("--advertised", "kafka:x"), "--advertised must be HOST or HOST:PORT, got 'kafka:x'"),
        (("--advertised", ":9092"), "--advertised must be HOST or HOST:PORT, got ':9092'"),
        (("--advertised", "kafka:70000"), "--advertised must be HOST or HOST:PORT, got 'kafka:70000'"),
    ],
)
async def test_a_wrong_address_is_explained(options: tuple[str, ...], error: str) -> None:
    refused = await run("broker", "--port", "0", *options)
    assert (refused.status, refused.errors.count("\n")) == (2, 1)
    assert error in refused.errors


@pytest.mark.parametrize(
    ("advertised", "host", "port"), [("[::1]:9092", "::1", 9092), ("[::1]", "::1", None), ("kafka", "kafka", None)]
)
def test_an_advertised_address_may_have_a_port(advertised: str, host: str, port: int | None) -> None:
    assert listen_settings(None, advertised) == {"advertised_host": host, "advertised_port": port}
