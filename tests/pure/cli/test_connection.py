"""The user's options, environment and file become properties, and no option holds a secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("typer")

from aiokafka_lite.cli.terminal.connection import ConnectionOptions, of_environment, of_options
from aiokafka_lite.errors import ConfigurationError


def test_variables_of_the_environment_become_security_properties() -> None:
    variables = {
        "AIOKAFKA_LITE_SECURITY_PROTOCOL": "SASL_SSL",
        "AIOKAFKA_LITE_SASL_PASSWORD": "secret",
        "AIOKAFKA_LITE_SSL_KEY_PASSWORD": "file:/run/secrets/key",
        "AIOKAFKA_LITE_PROXY_URL": "socks5://alice:secret@proxy:1080",
        "AIOKAFKA_LITE_BOOTSTRAP_SERVER": "an option's own",
        "AIOKAFKA_LITE_CONFIG": "an option's own",
        "PATH": "/bin",
    }
    assert of_environment(variables) == {
        "security.protocol": "SASL_SSL",
        "sasl.password": "secret",
        "ssl.key.password": "file:/run/secrets/key",
        "proxy.url": "socks5://alice:secret@proxy:1080",
    }


@pytest.mark.parametrize(
    ("variable", "error"),
    [
        ("SASL_PASWORD", "AIOKAFKA_LITE_SASL_PASWORD: sasl.pasword is not a property .*; did you mean sasl.password"),
        ("BOOTSTRAP", "no command reads AIOKAFKA_LITE_BOOTSTRAP; did you mean AIOKAFKA_LITE_BOOTSTRAP_SERVER"),
        ("BOOTSTRAP_SERVERS", "did you mean AIOKAFKA_LITE_BOOTSTRAP_SERVER"),
        ("SERVER", "did you mean AIOKAFKA_LITE_BOOTSTRAP_SERVER"),
        ("CONFIG_FILE", "did you mean AIOKAFKA_LITE_CONFIG"),
    ],
)
def test_a_misspelled_variable_is_an_error_with_the_nearest_name(variable: str, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        of_environment({f"AIOKAFKA_LITE_{variable}": "x"})


@pytest.mark.parametrize(
    "variable", ["PURE", "CI", "SERVICE_HOST", "SERVICE_PORT", "PORT", "PORT_9092_TCP_ADDR", "PROXY_PORT"]
)
def test_variables_of_others_are_ignored(variable: str) -> None:
    assert of_environment({f"AIOKAFKA_LITE_{variable}": "x"}) == {}


def test_the_error_of_a_misspelled_property_names_its_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.server=kafka:9092\n")
    with pytest.raises(ConfigurationError, match=rf"^{path}: bootstrap.server is not .* mean bootstrap.servers\?"):
        ConnectionOptions(None, path, (), None).all_properties()


def test_an_option_may_refer_to_a_secret() -> None:
    texts = ["security.protocol=SSL", "ssl.key.password=env:KEY", "client.id=a=b"]
    expected = {"security.protocol": "SSL", "ssl.key.password": "env:KEY", "client.id": "a=b"}
    assert of_options(texts) == expected


@pytest.mark.parametrize(
    "text",
    [
        "sasl.oauthbearer.token.endpoint.url=https://idp.example/token",
        "sasl.oauthbearer.token.provider=tokens:of_orders",
        "schema.registry.url=http://registry:8081/a@b",
        "proxy.url=socks5://proxy:1080",
        "proxy.url=env:PROXY",
    ],
)
def test_an_option_may_hold_an_address_without_a_user(text: str) -> None:
    name, _, value = text.partition("=")
    assert of_options([text]) == {name: value}


@pytest.mark.parametrize("address", ["proxy.url=socks5://u:hunter2@h:1080", "schema.registry.url=http://u:hunter2@h"])
def test_an_option_may_not_hold_an_address_with_a_password(address: str) -> None:
    with pytest.raises(ConfigurationError, match="must not be given in plain text") as caught:
        of_options([address])
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl.key.password",
        "sasl.jaas.config",
        "ssl.keystore.key",
        "sasl.oauthbearer.token",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.client.credentials.client.secret",
    ],
)
def test_an_option_may_not_hold_a_secret(name: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"use {name}=env:VARIABLE")) as caught:
        of_options([f"{name}=hunter2"])
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "=", "=value", "sasl.password"])
def test_a_property_has_a_name_and_a_value(text: str) -> None:
    with pytest.raises(ConfigurationError, match="property must be NAME=VALUE"):
        of_options([text])


async def test_options_override_the_environment_which_overrides_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=of-file:1\nclient.id=of-file\nclient.rack=of-file\nsasl.username=of-file\n")
    monkeypatch.setenv("AIOKAFKA_LITE_SASL_USERNAME", "of-environment")
    properties = ConnectionOptions("of-option:1", path, ["client.id=of-option"], None).all_properties()
    assert properties == {
        "bootstrap.servers": "of-option:1",
        "client.id": "of-option",
        "client.rack": "of-file",
        "sasl.username": "of-environment",
    }


async def test_given_settings_override_the_file_which_overrides_defaults(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("linger.ms=70\nacks=1\n")
    producer = ConnectionOptions(None, path, (), None).producer({"linger": 0.005, "batch_size": 1000}, {"acks": 0})
    assert (producer.config.linger, producer.config.batch_size, producer.config.acks) == (0.07, 1000, 0)


async def test_the_file_may_set_strategies_and_the_group(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("group.id=of-file\npartition.assignment.strategy=StickyAssignor\n")
    connection = ConnectionOptions(None, path, (), None)
    assert connection.group(None) == "of-file"
    assert connection.group("given") == "given"
    consumer = connection.consumer("of-file", topics=["orders"])
    assert consumer._core.require_group().config.group_id == "of-file"


async def test_the_producer_refuses_an_unknown_codec() -> None:
    with pytest.raises(ConfigurationError, match=r"compression must be one of .*'lz4'.*, got 'zip'"):
        ConnectionOptions(None, None, (), None).producer({}, {"compression": "zip"})


async def test_an_error_of_the_option_for_time_does_not_blame_a_property() -> None:
    connection = ConnectionOptions(None, None, ["default.api.timeout.ms=60000"], 99_999_999)
    with pytest.raises(ConfigurationError, match=r"^api_timeout must be at most 2,147,483 seconds"):
        connection.new_admin()
