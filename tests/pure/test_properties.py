"""Kafka's client properties become keyword arguments; a wrong property is an error with its name."""

from __future__ import annotations

import pickle
from os.path import basename
from pathlib import Path
from typing import Any, cast

import pytest

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.admin import Admin
from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.settings.checks import log_unusual
from aiokafka_lite.settings.properties import client_settings, consumer_settings, producer_settings, read_properties
from aiokafka_lite.settings.security import Secret

SERVERS = {"bootstrap.servers": "localhost:9092"}
SCRAM = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
PASSWORD = "t0p, \"secret\"; = 'x' \\ é"


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def shown(secret: object) -> str:
    assert isinstance(secret, Secret)
    return secret.encode().decode()


# Files.


@pytest.mark.parametrize(
    "text, properties",
    [
        ("a=b", {"a": "b"}),
        ("a = b c \n", {"a": "b c "}),
        ("a:b\nc : d\ne f\ng", {"a": "b", "c": "d", "e": "f", "g": ""}),
        ("a==b", {"a": "=b"}),
        ("# one\n  ! two\n\n \t\na=b#c", {"a": "b#c"}),
        ("a=1,\\\n   2,\\\r\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("a=x\\\n# y\nb=z", {"a": "x# y", "b": "z"}),
        ("a\\ b\\=c\\:d=e", {"a b=c:d": "e"}),
        (r"a=\t\n\r\f\"\q\\u0041", {"a": '\t\n\r\f"q\\u0041'}),
        (r"a=\u0041\u00e9 \u20ac\ud83d\ude00", {"a": "Aé €😀"}),
        ("a=é", {"a": "é"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
        ("", {}),
    ],
)
def test_a_file_in_javas_form_is_read_as_java_reads_it(tmp_path: Path, text: str, properties: dict[str, str]) -> None:
    assert read_properties(written(tmp_path / "client.properties", text)) == properties


def test_a_file_that_is_not_utf8_is_read_in_latin_1(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(b"client.id=caf\xe9")
    assert read_properties(path) == {"client.id": "café"}


def test_toml_may_have_dots_or_tables_and_values_of_any_kind(tmp_path: Path) -> None:
    path = written(
        tmp_path / "client.toml",
        '"bootstrap.servers" = ["a:1", "b:2"]\nlinger.ms = 5\nenable.idempotence = false\n'
        '[ssl.truststore]\nlocation = "ca.pem"\ntype = "PEM"\n',
    )
    assert read_properties(path) == {
        "bootstrap.servers": "a:1,b:2",
        "linger.ms": "5",
        "enable.idempotence": "false",
        "ssl.truststore.location": "ca.pem",
        "ssl.truststore.type": "PEM",
    }


@pytest.mark.parametrize(
    "name, text, says",
    [
        ("a.properties", "x=1\na=\\u00g1", r"line 2: \\u must have four hexadecimal digits"),
        ("a.toml", "x = 1\nsasl.password = hunter2", "line 2 must be TOML; quote strings"),
        ("a.toml", "linger.ms = 1979-05-27", "linger.ms must be a string, a number"),
        ("missing.properties", None, "No such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_its_place(
    tmp_path: Path, name: str, text: str | None, says: str
) -> None:
    path = tmp_path / name
    if text is not None:
        written(path, text)
    with pytest.raises(ConfigurationError, match=says) as refused:
        read_properties(path)
    assert "hunter2" not in str(refused.value)


# Meanings.


def test_settings_are_in_our_names_and_units() -> None:
    properties = {
        **SERVERS,
        "client.id": "orders",
        "request.timeout.ms": "20000",
        "default.api.timeout.ms": "40000",
        "retry.backoff.ms": "250",
        "metadata.max.age.ms": "1500",
        "acks": "-1",
        "linger.ms": "5",
        "compression.type": "zstd",
        "max.in.flight.requests.per.connection": "3",
        "group.id": "billing",
        "fetch.max.wait.ms": "100",
        "isolation.level": "read_uncommitted",
        "check.crcs": "false",
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor,RangeAssignor",
    }
    of_client = {
        "bootstrap_servers": "localhost:9092",
        "client_id": "orders",
        "request_timeout": 20.0,
        "api_timeout": 40.0,
        "retry_backoff": 0.25,
        "metadata_max_age": 1.5,
    }
    assert client_settings(properties) == of_client
    assert producer_settings(properties) == {
        **of_client,
        "acks": "all",
        "linger": 0.005,
        "compression": "zstd",
        "max_in_flight_requests_per_connection": 3,
    }
    assert consumer_settings(properties) == {
        **of_client,
        "group_id": "billing",
        "fetch_max_wait": 0.1,
        "isolation_level": "read_uncommitted",
        "check_crcs": False,
        "strategies": ("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "RangeAssignor"),
    }


def test_every_property_becomes_an_argument_that_its_client_takes() -> None:
    client = {
        **SERVERS,
        "client.id": "c",
        "client.rack": "r",
        "request.timeout.ms": "20000",
        "default.api.timeout.ms": "40000",
        "socket.connection.setup.timeout.ms": "5000",
        "retry.backoff.ms": "250",
        "retry.backoff.max.ms": "900",
        "reconnect.backoff.ms": "60",
        "reconnect.backoff.max.ms": "9000",
        "metadata.max.age.ms": "100000",
        "connections.max.idle.ms": "300000",
        **SCRAM,
        "sasl.username": "alice",
        "sasl.password": "x",
    }
    producer = {
        "acks": "all",
        "enable.idempotence": "true",
        "linger.ms": "5",
        "batch.size": "16384",
        "buffer.memory": "33554432",
        "max.request.size": "1048576",
        "compression.type": "gzip",
        "delivery.timeout.ms": "120000",
        "max.in.flight.requests.per.connection": "5",
        "max.block.ms": "60000",
    }
    consumer = {
        "group.id": "g",
        "group.instance.id": "i",
        "auto.offset.reset": "by_duration:PT1H",
        "isolation.level": "read_committed",
        "fetch.min.bytes": "1",
        "fetch.max.bytes": "52428800",
        "fetch.max.wait.ms": "500",
        "max.partition.fetch.bytes": "1048576",
        "check.crcs": "true",
        "session.timeout.ms": "45000",
        "heartbeat.interval.ms": "3000",
        "max.poll.interval.ms": "300000",
        "enable.auto.commit": "true",
        "auto.commit.interval.ms": "5000",
        "partition.assignment.strategy": "range,roundrobin,sticky,cooperative-sticky",
    }
    topics = {"allow.auto.create.topics": "false"}
    everything = {**client, **producer, **consumer, **topics}
    for make, settings in (
        (Admin, client_settings(everything)),
        (Producer, producer_settings(everything)),
        (Consumer, {"topics": ["orders"], **consumer_settings(everything)}),
    ):
        function: Any = make
        function(**settings)
    assert len(producer_settings(everything)) == len(client) + len(producer) + len(topics)
    assert len(consumer_settings(everything)) == len(client) + len(consumer) + len(topics)


def test_javas_names_of_the_group_protocol_are_known() -> None:
    properties = {**SERVERS, "group.id": "g", "group.protocol": "CONSUMER", "group.remote.assignor": "range"}
    settings = consumer_settings(properties)
    assert (settings["group_protocol"], settings["group_remote_assignor"]) == ("consumer", "range")
    Consumer(topics=["orders"], **settings)


def test_a_consumer_without_a_group_takes_no_settings_of_members() -> None:
    properties = {**SERVERS, "session.timeout.ms": "10000", "fetch.min.bytes": "5"}
    assert consumer_settings(properties) == {"bootstrap_servers": "localhost:9092", "fetch_min_bytes": 5}
    with_group = consumer_settings({**properties, "group.id": "a"}, group_id="b")
    assert with_group["group_id"] == "b"
    assert with_group["session_timeout"] == 10.0


def test_a_pause_longer_than_the_longest_by_default_is_constant() -> None:
    settings = client_settings({**SERVERS, "retry.backoff.ms": "5000"})
    assert settings["retry_backoff"] == settings["retry_backoff_max"] == 5.0


def test_a_long_time_in_milliseconds_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    log_unusual.cache_clear()
    properties = {**SERVERS, "group.id": "g", "max.poll.interval.ms": "2147483647"}
    properties |= {"max.block.ms": "9223372036854775807", "reconnect.backoff.max.ms": "3600000"}
    Consumer(topics=["orders"], **cast(Any, consumer_settings(properties)))
    Producer(**cast(Any, producer_settings(properties)))
    assert not caplog.messages


@pytest.mark.parametrize(
    "name, value, says",
    [
        (
            "sasl.mechanisim",
            "PLAIN",
            "^sasl.mechanisim is not a property of a Kafka client; did you mean sasl.mechanism",
        ),
        ("bootstrap_servers", "a:1", "did you mean bootstrap.servers?"),
        ("zzz", "1", "^zzz is not a property of a Kafka client$"),
        ("linger.ms", "5 ms", "^linger.ms must be a number of milliseconds, got '5 ms'"),
        ("batch.size", "big", "^batch.size must be a whole number, got 'big'"),
        ("enable.idempotence", "yes", "^enable.idempotence must be true or false, got 'yes'"),
        ("acks", "2", "^acks must be 0, 1 or all, got '2'"),
        ("client.dns.lookup", "use_all_dns_ips", "^client.dns.lookup is a property of Java's client that has no"),
        ("recieve.buffer.bytes", "1", "did you mean receive.buffer.bytes?"),
        (
            "sasl.login.callback.handler.class",
            "X",
            "set sasl.oauthbearer.token.endpoint.url, or sasl.oauthbearer.token.provider to a function",
        ),
        ("ssl.truststore.type", "JKS", "^ssl.truststore.type=JKS must be PEM or PKCS12; convert it: keytool"),
        ("ssl.keystore.type", "jks", "-deststoretype PKCS12, and set ssl.keystore.type=PKCS12"),
        (
            "ssl.truststore.location",
            "/etc/kafka/trust.JKS",
            "^ssl.truststore.location='/etc/kafka/trust.JKS' must be PEM",
        ),
        ("ssl.endpoint.identification.algorithm", "dns", "https, or empty"),
        ("partition.assignment.strategy", " , ", "names of assignment strategies"),
        (
            "linger.ms",
            "env:AIOKAFKA_LITE_NOT_SET",
            "^linger.ms: environment variable 'AIOKAFKA_LITE_NOT_SET' is not set",
        ),
        ("sasl.password", "file:/no/such/file", "^sasl.password: cannot read '/no/such/file': No such file"),
        ("sasl.oauthbearer.token.provider", "no_colon", "must be module:function, got 'no_colon'"),
        ("sasl.oauthbearer.token.provider", "no_such_module:f", "No module named"),
        ("sasl.oauthbearer.token.provider", ".here:f", "it raised TypeError"),
        ("sasl.oauthbearer.token.provider", "os:sep", "must be the name of a function, got 'os:sep'"),
    ],
)
def test_a_wrong_property_is_refused_by_its_name(name: str, value: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as refused:
        producer_settings({**SERVERS, name: value})
        consumer_settings({**SERVERS, "group.id": "g", name: value})
    assert "hunter2" not in str(refused.value)


def test_two_properties_for_one_setting_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^ssl.ca.location and ssl.truststore.location are the same setting"):
        client_settings({"ssl.truststore.location": "a.pem", "ssl.ca.location": "b.pem"})


# Security.


def jaas(options: str, module: str = "scram.ScramLoginModule") -> str:
    return f"org.apache.kafka.common.security.{module} required {options};"


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def test_credentials_come_from_the_jaas_configuration() -> None:
    config = jaas(f"username='ali\\'ce'\n  password = {quoted(PASSWORD)} ") + "\n"
    settings = client_settings({**SCRAM, "sasl.jaas.config": config})
    assert settings["security_protocol"] == "SASL_PLAINTEXT"
    assert settings["sasl_mechanism"] == "SCRAM-SHA-256"
    assert settings["sasl_username"] == "ali'ce"
    assert shown(settings["sasl_password"]) == PASSWORD
    assert "sasl_tokenauth" not in settings


def test_a_login_with_a_delegation_token_comes_from_the_jaas_configuration() -> None:
    settings = client_settings({**SCRAM, "sasl.jaas.config": jaas("username=id password=hmac tokenauth=true")})
    assert settings["sasl_tokenauth"] is True


@pytest.mark.parametrize(
    "config, says",
    [
        ("", "must be a login module"),
        (jaas("username=alice password=hunter2").removesuffix(";"), "and a semicolon"),
        (jaas("username=alice password=hunter2") * 2, "must be a login module"),
        (jaas('username=alice password="hunter2'), "has an unclosed quotation mark"),
        (jaas("username=alice password hunter2"), "options as name=value"),
        (jaas("username=alice"), "must have a password"),
        (jaas("password=hunter2"), "must have a username"),
        (jaas("username=alice password=hunter2 tokenauth=yes"), "tokenauth must be true or false, got 'yes'"),
        (jaas("username=alice password=hunter2 serviceName=kafka"), "the option 'serviceName' is not supported"),
        (
            jaas("username=alice password=hunter2", "plain.PlainLoginModule"),
            "PlainLoginModule requires sasl.mechanism=PLAIN, got SCRAM",
        ),
        (jaas("useKeyTab=true", "JndiLoginModule"), "must have one of the login modules .*, got 'JndiLoginModule'"),
        (
            jaas("username=alice password=env:AIOKAFKA_LITE_NOT_SET"),
            "sasl.jaas.config: password: environment variable .* is not set",
        ),
    ],
)
def test_a_wrong_jaas_configuration_is_refused_without_quoting_it(config: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as refused:
        client_settings({**SCRAM, "sasl.jaas.config": config})
    assert "hunter2" not in str(refused.value)


KERBEROS = {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}


def krb5(options: str) -> str:
    return f"com.sun.security.auth.module.Krb5LoginModule required {options};"


@pytest.mark.parametrize(
    "properties, expected",
    [
        ({}, {}),
        (
            {
                "sasl.kerberos.service.name": "broker",
                "sasl.kerberos.keytab": "/etc/a.keytab",
                "sasl.kerberos.principal": "a@B",
            },
            {"service_name": "broker", "keytab": "/etc/a.keytab", "principal": "a@B"},
        ),
        (
            {
                "sasl.kerberos.service.name": "kafka",
                "sasl.jaas.config": krb5(
                    'useKeyTab=true storeKey=true doNotPrompt=true keyTab="/etc/a.keytab" principal="a@B"'
                ),
            },
            {"service_name": "kafka", "keytab": "/etc/a.keytab", "principal": "a@B"},
        ),
        ({"sasl.jaas.config": krb5('useTicketCache=true serviceName="broker"')}, {"service_name": "broker"}),
        ({"sasl.jaas.config": krb5('useKeyTab=false keyTab="/etc/a.keytab"')}, {}),
    ],
)
def test_kerberos_is_configured_as_for_java_and_librdkafka(
    properties: dict[str, str], expected: dict[str, str]
) -> None:
    settings = client_settings({**KERBEROS, **properties})
    assert settings == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "GSSAPI",
        **{f"sasl_kerberos_{name}": value for name, value in expected.items()},
    }


@pytest.mark.parametrize(
    "properties, says",
    [
        ({"sasl.jaas.config": krb5("useKeyTab=true")}, 'must have keyTab="/path" with useKeyTab=true'),
        ({"sasl.jaas.config": krb5('ticketCache="/tmp/cc"')}, "set the environment variable KRB5CCNAME"),
        ({"sasl.jaas.config": krb5("username=alice")}, "the option 'username' is not supported"),
        (
            {"sasl.kerberos.service.name": "kafka", "sasl.jaas.config": krb5("serviceName=broker")},
            "serviceName and sasl.kerberos.service.name differ",
        ),
        ({"sasl.kerberos.kinit.cmd": "kinit"}, "has no counterpart here; remove it"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": krb5("")}, "requires sasl.mechanism=GSSAPI, got PLAIN"),
    ],
)
def test_a_kerberos_property_that_cannot_be_followed_is_refused(properties: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        client_settings({**KERBEROS, **properties})


def test_references_are_resolved_when_the_settings_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "password"
    properties = {**SCRAM, "sasl.username": "env:KAFKA_USER", "sasl.password": f"file:{path}"}
    written(path, "first\n")
    monkeypatch.setenv("KAFKA_USER", "alice")
    settings = client_settings(properties)
    assert settings["sasl_username"] == "alice"
    assert shown(settings["sasl_password"]) == "first"
    written(path, "second\n")
    assert shown(client_settings(properties)["sasl_password"]) == "second"


def test_a_token_in_a_file_is_read_again_each_time(tmp_path: Path) -> None:
    path = written(tmp_path / "token", "one\n")
    oauth = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    login = {"sasl.jaas.config": jaas("", "oauthbearer.OAuthBearerLoginModule")}
    settings: Any = client_settings({**oauth, **login, "sasl.oauthbearer.token": f"file://{path}"})
    provider = settings["sasl_oauth_token_provider"]
    assert shown(provider()) == "one"
    written(path, "two\n")
    assert shown(provider()) == "two"


def test_a_token_provider_is_imported_by_its_path() -> None:
    settings = client_settings({"sasl.oauthbearer.token.provider": "os.path:basename"})
    assert settings["sasl_oauth_token_provider"] is basename


def test_a_secret_prints_stars_and_encodes_as_its_text() -> None:
    secret = Secret("hunter2")
    assert f"{secret} {secret!r} %s" % secret == "*** '***' ***"
    assert str(Secret(secret)) == "***"
    assert Secret(secret).encode() == b"hunter2"
    assert pickle.loads(pickle.dumps(secret)).encode() == b"hunter2"
    assert secret == "hunter2"


def test_settings_with_secrets_may_be_printed() -> None:
    settings = client_settings({**SCRAM, "sasl.username": "alice", "sasl.password": "hunter2"})
    assert "hunter2" not in repr(settings)


def test_a_producer_may_be_kept_from_creating_topics() -> None:
    assert producer_settings({"allow.auto.create.topics": "false"}) == {"allow_auto_create_topics": False}
