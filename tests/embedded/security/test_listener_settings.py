"""Settings of one listener, ``listener.name.<listener>.<setting>``, act on its clients and on no others."""

from __future__ import annotations

import pytest

from aiokafka_lite.admin import Admin, ConfigResource, ConfigResourceType, ConfigSource
from aiokafka_lite.embedded import EmbeddedCluster, Security
from aiokafka_lite.errors import AuthenticationError, BrokerError, ConfigurationError, ErrorCode, KafkaError
from aiokafka_lite.protocol.messages import SaslAuthenticateRequest, SaslAuthenticateResponse

USERS = {"alice": "alice-secret"}
BROKER = ConfigResource(ConfigResourceType.BROKER, "1")
BROKERS = ConfigResource(ConfigResourceType.BROKER, "")
OF_SSL, OF_SASL = "listener.name.ssl.", "listener.name.sasl_plaintext."


def principals(cluster: EmbeddedCluster) -> set[str]:
    return {connection.principal for connection in cluster.nodes[1].connections}


async def test_a_listener_has_mapping_rules_and_wants_certificates_of_its_own() -> None:
    configs = {
        f"{OF_SSL}ssl.client.auth": "required",
        f"{OF_SSL}ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/U",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/other/",
    }
    security = Security(["SSL", "SASL_SSL"], users=USERS)
    async with EmbeddedCluster(brokers=1, security=security, configs=configs) as cluster:
        async with Admin(**cluster.client_settings("bob", protocol="SSL")):
            assert principals(cluster) == {"User:BOB"}
        assert "ssl_certfile" not in cluster.client_settings(protocol="SASL_SSL")
        async with Admin(**cluster.client_settings(protocol="SASL_SSL")):
            assert "User:alice" in principals(cluster)
        without = {**cluster.client_settings(protocol="SSL"), "ssl_certfile": None}
        with pytest.raises(AuthenticationError, match="requires a client certificate"):
            await Admin(**without, api_timeout=60.0).start()


async def test_a_listener_offers_a_part_of_the_mechanisms() -> None:
    security = Security(["SASL_PLAINTEXT", "SASL_SSL"], users=USERS)
    configs = {f"{OF_SASL}sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    async with EmbeddedCluster(brokers=1, security=security, configs=configs) as cluster:
        settings = cluster.client_settings(protocol="SASL_PLAINTEXT")
        assert settings["sasl_mechanism"] == "SCRAM-SHA-512"
        async with Admin(**settings), Admin(**cluster.client_settings(protocol="SASL_SSL", mechanism="PLAIN")):
            pass
        with pytest.raises(AuthenticationError, match=r"it offers SCRAM-SHA-512$"):
            await Admin(**{**settings, "sasl_mechanism": "PLAIN"}).start()


@pytest.mark.parametrize("name", ["connections.max.reauth.ms", "plain.connections.max.reauth.ms"])
async def test_sessions_end_on_one_listener_alone(name: str) -> None:
    security = Security(["SASL_PLAINTEXT", "SASL_SSL"], users=USERS)
    configs = {f"{OF_SASL}{name}": "60000", f"{OF_SASL}scram-sha-256.connections.max.reauth.ms": "0"}
    async with EmbeddedCluster(brokers=1, security=security, configs=configs) as cluster:
        lifetimes = []
        for protocol, mechanism in (
            ("SASL_PLAINTEXT", "PLAIN"),
            ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
            ("SASL_SSL", "PLAIN"),
        ):
            async with Admin(**cluster.client_settings(protocol=protocol, mechanism=mechanism)):
                last = cluster.history.of(SaslAuthenticateRequest)[-1].response
                assert isinstance(last, SaslAuthenticateResponse)
                lifetimes.append(last.session_lifetime_ms)
    assert lifetimes == [60_000, 0, 0]


async def test_a_listener_has_a_limit_of_connections_of_its_own_that_can_change() -> None:
    security = Security(["PLAINTEXT", "SASL_PLAINTEXT"], users=USERS)
    configs = {f"{OF_SASL}max.connections": "0"}
    async with EmbeddedCluster(brokers=1, security=security, configs=configs) as cluster:
        by_login = cluster.client_settings(protocol="SASL_PLAINTEXT")
        async with Admin(**cluster.client_settings(protocol="PLAINTEXT")) as admin:
            with pytest.raises(KafkaError):
                await Admin(**by_login, api_timeout=0.3).start()
            (await admin.configs.alter({BROKER: {f"{OF_SASL}max.connections": "9"}})).raise_for_errors()
            async with Admin(**by_login):
                pass


async def test_they_are_described_as_in_kafka() -> None:
    configs = {f"{OF_SASL}max.connections": "20", f"{OF_SASL}plain.connections.max.reauth.ms": "7000"}
    security = Security(["PLAINTEXT", "SASL_PLAINTEXT"], users=USERS)
    async with (
        EmbeddedCluster(brokers=1, security=security, configs=configs) as cluster,
        Admin(**cluster.client_settings(protocol="PLAINTEXT")) as admin,
    ):
        described = (await admin.configs.describe([BROKER], synonyms=True)).raise_for_errors()[BROKER]
        entry = described[f"{OF_SASL}plain.connections.max.reauth.ms"]
        assert (entry.value, entry.read_only, entry.source) == ("7000", True, ConfigSource.BROKER_FILE)
        assert [(synonym.name, synonym.value) for synonym in entry.synonyms] == [
            (f"{OF_SASL}plain.connections.max.reauth.ms", "7000"),
            ("connections.max.reauth.ms", "0"),
        ]


@pytest.mark.parametrize(
    "resource, name, value, code",
    [
        (BROKER, f"{OF_SASL}max.connections", "x", ErrorCode.INVALID_REQUEST),
        (BROKER, f"{OF_SASL}max.connections", "-1", ErrorCode.INVALID_REQUEST),
        (BROKER, "listener.name.internal.max.connections", "50", None),
        (BROKER, f"{OF_SASL}connections.max.reauth.ms", "5000", None),
        (BROKER, f"{OF_SASL}ssl.principal.mapping.rules", "X", None),
        (BROKER, f"{OF_SASL}no.such", "1", None),
        (BROKERS, f"{OF_SASL}max.connections", "50", None),
        (BROKERS, f"{OF_SASL}connections.max.reauth.ms", "5000", ErrorCode.INVALID_REQUEST),
        (BROKERS, f"{OF_SASL}no.such", "1", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_change_is_accepted_or_refused_as_by_kafka(
    resource: ConfigResource, name: str, value: str, code: ErrorCode | None
) -> None:
    async with EmbeddedCluster(brokers=1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        error = (await admin.configs.alter({resource: {name: value}})).failed.get(resource)
        assert (error.code if isinstance(error, BrokerError) else error) == code


@pytest.mark.parametrize(
    "configs, says",
    [
        ({"listener.name.sasl_ssl.max.connections": "5"}, r"listener must be one of \['ssl'\], got 'sasl_ssl'"),
        ({"listener.name.ssl.ssl.keystore.location": "a.pem"}, "the settings of a listener that have an effect are"),
        ({"listener.name.ssl.max.connections": "x"}, "max.connections must be a number"),
        ({"listener.name.ssl.ssl.principal.mapping.rules": "X"}, "ssl.principal.mapping.rules must be"),
    ],
)
async def test_a_setting_of_a_listener_that_cannot_act_is_refused(configs: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        EmbeddedCluster(brokers=1, security="SSL", configs=configs)


@pytest.mark.parametrize(
    "name, says",
    [
        ("sasl_ssl.plain.max.connections", "only connections.max.reauth.ms can be set for one mechanism"),
        ("sasl_ssl.plain.ssl.client.auth", "only connections.max.reauth.ms can be set for one mechanism"),
        ("sasl_ssl.plain.sasl.enabled.mechanisms", "only connections.max.reauth.ms can be set for one mechanism"),
        ("sasl_ssl.ssl.principal.mapping.rules", "the listener must be one of SSL"),
        ("plaintext.ssl.client.auth", "the listener must be one of SSL, SASL_SSL"),
        ("sasl_plaintext.ssl.client.auth", "the listener must be one of SSL, SASL_SSL"),
        ("ssl.sasl.enabled.mechanisms", "the listener must be one of SASL_PLAINTEXT, SASL_SSL"),
        ("ssl.sasl.server.max.receive.size", "the listener must be one of SASL_PLAINTEXT, SASL_SSL"),
        ("plaintext.connections.max.reauth.ms", "the listener must be one of SASL_PLAINTEXT, SASL_SSL"),
        ("plaintext.plain.connections.max.reauth.ms", "the listener must be one of SASL_PLAINTEXT, SASL_SSL"),
    ],
)
async def test_a_setting_of_another_protocol_or_of_one_mechanism_is_refused(name: str, says: str) -> None:
    values = {"auth": "required", "mechanisms": "PLAIN", "rules": "DEFAULT"}
    security = Security(["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], users=USERS)
    configs = {f"listener.name.{name}": values.get(name.rsplit(".", 1)[1], "1000000")}
    with pytest.raises(ConfigurationError, match=f"has no effect: {says}"):
        EmbeddedCluster(brokers=1, security=security, configs=configs)
