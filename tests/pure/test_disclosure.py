"""A canary in the place of a secret, rightly and wrongly: no error, chain of errors, repr or log has it.

The tables are made from the settings themselves, so a new setting is tried as well.
"""

from __future__ import annotations

import base64
import itertools
import json
import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import trustme

from aiokafka_lite import Admin, Consumer, EmbeddedCluster, Producer, ShareConsumer, disclosure, oauth
from aiokafka_lite.admin import ConfigChange, ConfigResource
from aiokafka_lite.arguments import must_be
from aiokafka_lite.cli.broker import security
from aiokafka_lite.cli.terminal import connection
from aiokafka_lite.cli.terminal.arguments import name_value
from aiokafka_lite.embedded import Security
from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.schemas import SchemaRegistryClient
from aiokafka_lite.settings import properties, property_logins
from aiokafka_lite.settings.client import ClientConfig
from aiokafka_lite.settings.security import Secret
from aiokafka_lite.spark import options

CANARY = "S3CR3T-xyz/Ab+9=="
OF_SECURITY = [
    field.name for field in fields(ClientConfig) if field.name.startswith(("ssl_", "sasl_", "security_", "bootstrap"))
]
SHAPES: dict[str, Any] = {
    "a text": CANARY,
    "a secret": Secret(CANARY),
    "bytes": CANARY.encode(),
    "a list": [CANARY],
    "a tuple": (CANARY,),
    "a dict": {"password": CANARY},
    "a key of a dict": {CANARY: "x"},
    "nested": [{"users": [("alice", CANARY)]}],
    "a set": {CANARY},
    "several lines": f"-----BEGIN {CANARY}\n{CANARY}\nEND",
    "PEM that is none": f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----",
    "base64": base64.b64encode(CANARY.encode() * 20).decode(),
    "a long text": CANARY * 40,
    "a NUL": f"{CANARY}\0",
    "a path": f"/{CANARY}",
    "a file": f"file:{CANARY}",
    "a variable": f"env:{CANARY}",
    "a module": f"{CANARY}:function",
    "a connection string": f"Endpoint=sb://x.servicebus.windows.net/;SharedAccessKey={CANARY}",
    "an address": f"h:9092;password={CANARY}",
    "a user": f"https://u:{CANARY}@h:9092",
    "a user without a scheme": f"u:{CANARY}@h",
    "a query": f"https://h/?apikey={CANARY}",
    "a path of an address": f"https://h/{CANARY}/x",
    "a fragment": f"http://h#{CANARY}",
    "a port": f"http://h:{CANARY}",
    "a bracket": f"http://[{CANARY}/",
    "other letters": f"http://u:{CANARY}\u2100@h/",
    "JAAS": f'org.x.PlainLoginModule required username="a" password="{CANARY}"',
    "JAAS without quotation marks": f"PlainLoginModule required username=a password={CANARY};",
    "an unknown login module": f"{CANARY} required username=a password=b;",
    "an option of JAAS": f'x.PlainLoginModule required username="a" password="b" {CANARY[:6]}="c";',
    "JSON": json.dumps({"password": CANARY}),
}
PARTS = {CANARY, CANARY[:6], base64.b64encode(CANARY.encode() * 20).decode()[:20]}


def everything_of(error: BaseException | None) -> Iterator[str]:
    """Yield the texts of an error and of all errors that it refers to."""
    if error is not None:
        yield from (str(error), repr(error), *getattr(error, "__notes__", ()))
        yield "".join(traceback.TracebackException.from_exception(error, lookup_lines=False).format_exception_only())
        yield from everything_of(error.__cause__)
        yield from everything_of(error.__context__)


def shows(call: Callable[[], object]) -> str | None:
    """Return the text of the result or of the error, if it has a part of the canary."""
    texts: list[str] = []
    try:
        result = call()
        texts.append(repr(result))
        texts.append(repr(getattr(result, "config", None)))
    except Exception as error:  # noqa: BLE001 - which error it is, is said by the tests of the settings
        texts.extend(everything_of(error))
    return next((text for text in texts if any(part in text for part in PARTS)), None)


@pytest.fixture(autouse=True)
def _quiet_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    assert not any(part in caplog.text for part in PARTS)


MECHANISMS: dict[str | None, dict[str, Any]] = {
    "PLAIN": {"sasl_username": "alice", "sasl_password": "x"},
    "SCRAM-SHA-256": {"sasl_username": "alice", "sasl_password": "x", "sasl_tokenauth": True},
    "OAUTHBEARER": {"sasl_oauth_token_provider": str},
    None: {},
}


@pytest.mark.parametrize("name", OF_SECURITY)
def test_no_client_quotes_what_may_be_a_secret(name: str) -> None:
    # A context with the system's certificates takes 30 ms, so only the settings of TLS are tried with TLS.
    protocol = "SSL" if name.startswith("ssl_") else "SASL_PLAINTEXT"
    mechanisms = [None] if protocol == "SSL" else list(MECHANISMS)
    leaks = {}
    for (shape, value), mechanism in itertools.product(SHAPES.items(), mechanisms):
        if name == "sasl_username" and isinstance(value, str):
            continue  # a user name is printed
        settings: dict[str, Any] = {"bootstrap_servers": "h:9092", "security_protocol": protocol}
        if mechanism is not None:
            settings |= {"sasl_mechanism": mechanism, **MECHANISMS[mechanism]}
        leaks[shape, mechanism] = shows(lambda settings=settings: Producer(**{**settings, name: value}))  # noqa: B023
        leaks[shape, "without"] = shows(lambda: Admin(**{"bootstrap_servers": "h:1", name: value}))  # noqa: B023
    assert {case: leak for case, leak in leaks.items() if leak is not None} == {}


def test_no_consumer_quotes_what_may_be_a_secret() -> None:
    for name in OF_SECURITY:
        settings: dict[str, Any] = {"bootstrap_servers": "h:1", name: [CANARY]}
        assert shows(lambda settings=settings: Consumer(topics=["t"], **settings)) is None
        assert shows(lambda settings=settings: ShareConsumer(topics=["t"], group_id="g", **settings)) is None


def test_a_user_name_is_not_quoted_when_it_has_the_wrong_type() -> None:
    settings = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_password": "x"}
    assert shows(lambda: Producer("h:1", sasl_username=[CANARY], **settings)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", SHAPES)
def test_no_secret_by_position_is_quoted(shape: str) -> None:
    value = SHAPES[shape]
    calls: list[Callable[[], object]] = [
        lambda: Producer("h:9092", value),  # type: ignore[misc]
        lambda: Admin("h:9092", value),  # type: ignore[misc]
        lambda: Consumer(value, "orders"),  # type: ignore[misc]
        lambda: EmbeddedCluster(1, value),  # type: ignore[misc]
        lambda: EmbeddedCluster(security=value),
        lambda: Security(value),
        lambda: Security("SASL_PLAINTEXT", users=value),
        lambda: Security("SASL_PLAINTEXT", users={"alice": value}, mechanisms=value),
        lambda: Security("SASL_PLAINTEXT", users={"alice": value}),
        lambda: Security("SSL", client_auth=value),
        lambda: Security("SSL", ssl_certfile=value),
        lambda: Security("SASL_PLAINTEXT", check_token=value),
    ]
    assert [leak for leak in map(shows, calls) if leak is not None] == []


@pytest.mark.parametrize("shape", SHAPES)
def test_no_registry_and_no_token_provider_quotes_what_may_be_a_secret(shape: str, tmp_path: Path) -> None:
    value = SHAPES[shape]
    calls: list[Callable[[], object]] = [
        lambda: SchemaRegistryClient(value),
        lambda: SchemaRegistryClient([value]),
        lambda: SchemaRegistryClient("http://h", username=value),
        lambda: SchemaRegistryClient("http://h", username="a", password=value),
        lambda: SchemaRegistryClient("http://h", token=value),
        lambda: SchemaRegistryClient("http://h", ssl_context=value),
        lambda: SchemaRegistryClient("http://h", value),  # type: ignore[misc]
        lambda: oauth.ClientCredentials(value, "id", "secret"),
        lambda: oauth.ClientCredentials("https://h", value, ""),
        lambda: oauth.ClientCredentials("https://h", "id", value),
        lambda: oauth.ClientCredentials("https://h", "id", "x", cafile=value),
        lambda: oauth.TokenFromFile(value),
        lambda: oauth.TokenFromFile(value)(),
        lambda: oauth.imported_provider("sasl.oauthbearer.token.provider", value),
    ]
    assert [leak for leak in map(shows, calls) if leak is not None] == []


@pytest.mark.parametrize("shape", [name for name, value in SHAPES.items() if isinstance(value, str)])
def test_no_error_of_properties_quotes_what_may_be_a_secret(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = SHAPES[shape]
    names = [name for name in properties.MEANINGS if name.startswith(("ssl.", "sasl.", "security."))]
    names += property_logins.LOGIN_PROPERTIES
    leaks = []
    for name in {*names, "bootstrap.servers"} - {"sasl.username"}:
        settings = {"bootstrap.servers": "h:1", "security.protocol": "SASL_PLAINTEXT", name: value}
        for mechanism in ("PLAIN", "OAUTHBEARER"):
            with_mechanism = {**settings, "sasl.mechanism": mechanism} if name != "sasl.mechanism" else settings
            leaks.append(
                shows(lambda with_mechanism=with_mechanism: Producer(**properties.producer_settings(with_mechanism)))
            )
    file = tmp_path / "client.properties"
    for content in (value, f"sasl.password={value}", f"sasl.jaas.config={value}", f"ssl.keystore.key=x\n{value}\n"):
        with suppress(OSError, ValueError):
            file.write_text(content)
        leaks.append(shows(lambda: properties.client_settings(properties.read_properties(file)).keys()))
        (tmp_path / "client.toml").write_text(content.replace("\0", ""))
        leaks.append(
            shows(lambda: properties.client_settings(properties.read_properties(tmp_path / "client.toml")).keys())
        )
    leaks.append(shows(lambda: properties.read_properties(value)))
    assert [leak for leak in leaks if leak is not None] == []


@pytest.mark.parametrize("shape", [name for name, value in SHAPES.items() if isinstance(value, str)])
def test_no_error_of_the_command_line_quotes_what_may_be_a_secret(shape: str) -> None:
    value = SHAPES[shape].replace("\0", "")

    def made(*, servers: str = "h:1", config: Path | None = None, texts: tuple[str, ...] = ()) -> object:
        return connection.ConnectionOptions(servers, config, texts, None).new_admin()

    calls: list[Callable[[], object]] = [
        lambda: made(servers=value),
        lambda: made(config=Path(value)),
        lambda: made(texts=(value,)),
        lambda: made(texts=(f"sasl.password={value}",)),
        lambda: made(texts=(f"security.protocol={value}",)),
        lambda: connection.of_environment({"AIOKAFKA_LITE_SASL_MECHANISM": value}).keys(),
        lambda: name_value("property", value)[0] and None,
        lambda: security(False, "none", [value.replace(":", "")], []),
    ]
    assert [leak for leak in map(shows, calls) if leak is not None] == []


@pytest.mark.parametrize("shape", [name for name, value in SHAPES.items() if isinstance(value, str)])
def test_no_option_of_spark_is_quoted_that_may_be_a_secret(shape: str) -> None:
    value = SHAPES[shape]
    leaks = []
    for name in ("sasl.password", "sasl.jaas.config", "ssl.keystore.key", "ssl.key.password", "security.protocol",
                 "sasl.mechanism", "ssl.keystore.location", "ssl.truststore.location"):  # fmt: skip
        settings = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", f"kafka.{name}": value}
        leaks.append(shows(lambda settings=settings: options.batch_read(settings)))
        leaks.append(shows(lambda settings=settings: options.stream_read(settings)))
    leaks.append(shows(lambda: options.batch_read({"kafka.bootstrap.servers": value, "subscribe": "t"})))
    assert [leak for leak in leaks if leak is not None] == []


def test_a_change_of_a_secret_setting_hides_its_value() -> None:
    assert shows(lambda: ConfigChange("ssl.key.password", CANARY)) is None
    assert shows(lambda: ConfigChange("ssl.key.password", [CANARY])) is None  # type: ignore[arg-type]
    assert "compact" in repr(ConfigChange("cleanup.policy", "compact"))
    assert ConfigResource.broker(1)


@pytest.mark.parametrize(
    "form",
    [
        lambda key: base64.b64encode(key.encode()).decode(),
        lambda key: "".join(key.splitlines()[1:-1]),
        lambda key: key.replace("\n", "").replace("-----", ""),
        lambda key: key.replace("\n", "\\n"),
        lambda key: key[40:],
    ],
)
def test_a_private_key_that_is_not_pem_is_not_quoted(form: Callable[[str], str]) -> None:
    leaf = trustme.CA().issue_cert("orders.example")
    key, certificate = leaf.private_key_pem.bytes().decode(), leaf.cert_chain_pems[0].bytes().decode()
    with pytest.raises(ConfigurationError) as caught:
        Producer("h:1", security_protocol="SSL", ssl_certfile=certificate, ssl_keyfile=form(key))
    text = "".join(everything_of(caught.value))
    lines = [line for line in form(key).replace("\\n", "\n").splitlines() if len(line) > 20 and "KEY-----" not in line]
    assert lines
    assert not any(line[:20] in text for line in lines)


@pytest.mark.parametrize(
    ("address", "printed"),
    [
        ("http://u:pw@registry:8081/a?b=c#d", "http://registry:8081/…"),
        ("HTTPS://[::1]:8081/", "https://[::1]:8081"),
        ("http://registry", "http://registry"),
        ("u:pw@h", "a string of 6 characters"),
        ("http://h:pw/", "a string of 12 characters"),
        (None, "None"),
    ],
)
def test_an_address_is_printed_without_user_path_and_query(address: object, printed: str) -> None:
    assert disclosure.url(address) == printed


@pytest.mark.parametrize(
    ("server", "printed"),
    [
        ("kafka:9092", "'kafka:9092'"),
        ("localhost", "'localhost'"),
        ("alice:pw@kafka:9092", "'…@kafka:9092'"),
        ("kafka:9092;password=x", "'kafka:9092…'"),
        ("S3CR3T", "a string of 6 characters"),
        (b"kafka:9092", "bytes"),
    ],
)
def test_a_server_is_printed_as_far_as_it_is_an_address(server: object, printed: str) -> None:
    assert disclosure.address(server) == printed


def test_words_that_are_nearly_right_are_still_quoted() -> None:
    assert must_be("sasl_mechanism", "one of 'PLAIN', 'SCRAM-SHA-256'", "scram-sha-255").endswith("got 'scram-sha-255'")
    assert must_be("sasl_mechanism", "one of 'PLAIN', 'SCRAM-SHA-256'", CANARY).endswith(
        "got a string of 17 characters"
    )
    assert must_be("linger", "a number", "5").endswith("got '5'")
