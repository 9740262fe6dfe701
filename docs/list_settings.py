"""Write ``docs/settings.md`` from the configuration dataclasses: ``python docs/list_settings.py``.

The description of a setting is the docstring below its field. Java's names and defaults are in the table here; they are
those of Kafka 4.3. A test fails if a setting has no docstring or no line in the table, or if the page is outdated.

It also writes the docstrings of ``HOVERED``, the types of the clients' keyword arguments: an editor shows the docstring
of such a field for the argument. They have the description and the default of the configuration.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from aiokafka_lite.consumer.settings import ConsumerSettings  # noqa: E402
from aiokafka_lite.producer.settings import ProducerSettings  # noqa: E402
from aiokafka_lite.settings.config import (  # noqa: E402
    KIB,
    MIB,
    ClientConfig,
    ClientSettings,
    ConsumerConfig,
    GroupConfig,
    ProducerConfig,
)
from aiokafka_lite.share.config import ShareConfig  # noqa: E402
from aiokafka_lite.share.settings import ShareConsumerSettings  # noqa: E402

PAGE = ROOT / "docs" / "settings.md"

HOVERED = (ClientSettings, ProducerSettings, ConsumerSettings, ShareConsumerSettings)

CONFIGURATIONS: list[tuple[type, str, str]] = [
    (ClientConfig, "Every client", "`Producer`, `Consumer`, `ConsumerGroup` and `Admin` take these."),
    (ProducerConfig, "Producer", ""),
    (ConsumerConfig, "Consumer", "`Consumer` and `ConsumerGroup` take these."),
    (GroupConfig, "Group", "`ConsumerGroup`, and `Consumer` with a `group_id`, take these."),
    (ShareConfig, "Share group", "`ShareConsumer` takes these."),
]


class Java(NamedTuple):
    """The setting's name and default in Java's client: a value in our unit, or the words to print."""

    name: str | None
    default: object = None


SAME = object()
"""Java's default is the same."""

JAVA: dict[str, Java] = {
    "bootstrap_servers": Java("bootstrap.servers", SAME),
    "client_id": Java("client.id", "empty or generated"),
    "client_rack": Java("client.rack", SAME),
    "request_timeout": Java("request.timeout.ms", SAME),
    "api_timeout": Java("default.api.timeout.ms", SAME),
    "connect_timeout": Java("socket.connection.setup.timeout.ms", "10 s, growing to 30 s after failures"),
    "retry_backoff": Java("retry.backoff.ms", SAME),
    "retry_backoff_max": Java("retry.backoff.max.ms", SAME),
    "retry_backoff_function": Java(None),
    "reconnect_backoff": Java("reconnect.backoff.ms", SAME),
    "reconnect_backoff_max": Java("reconnect.backoff.max.ms", 1.0),
    "metadata_max_age": Java("metadata.max.age.ms", SAME),
    "connections_max_idle": Java("connections.max.idle.ms", SAME),
    "max_response_size": Java(None),
    "response_memory": Java(None),
    "max_open_requests": Java(None),
    "local_address": Java(None),
    "allow_auto_create_topics": Java("allow.auto.create.topics", SAME),
    "enable_metrics_push": Java("enable.metrics.push", SAME),
    "security_protocol": Java("security.protocol", SAME),
    "ssl_context": Java("ssl.engine.factory.class", SAME),
    "ssl_cafile": Java("ssl.truststore.location, ssl.truststore.certificates", "the JVM's certificates"),
    "ssl_certfile": Java("ssl.keystore.location, ssl.keystore.certificate.chain", SAME),
    "ssl_keyfile": Java("ssl.keystore.key", SAME),
    "ssl_key_password": Java("ssl.key.password", SAME),
    "ssl_check_hostname": Java("ssl.endpoint.identification.algorithm", SAME),
    "sasl_mechanism": Java("sasl.mechanism", '`"GSSAPI"`'),
    "sasl_username": Java("sasl.jaas.config", SAME),
    "sasl_password": Java("sasl.jaas.config", SAME),
    "sasl_tokenauth": Java("sasl.jaas.config", "`false`"),
    "sasl_oauth_token_provider": Java("sasl.login.callback.handler.class", SAME),
    "sasl_oauth_extensions": Java("sasl.jaas.config", SAME),
    "sasl_kerberos_service_name": Java("sasl.kerberos.service.name", "none"),
    "sasl_kerberos_keytab": Java("sasl.jaas.config", SAME),
    "sasl_kerberos_principal": Java("sasl.jaas.config", SAME),
    "acks": Java("acks", SAME),
    "transactional_id": Java("transactional.id", SAME),
    "transaction_timeout": Java("transaction.timeout.ms", SAME),
    "idempotence": Java("enable.idempotence", SAME),
    "retries": Java("retries", SAME),
    "linger": Java("linger.ms", 0.005),
    "batch_size": Java("batch.size", 16 * KIB),
    "max_request_size": Java("max.request.size", SAME),
    "buffer_memory": Java("buffer.memory", SAME),
    "max_in_flight_requests_per_connection": Java("max.in.flight.requests.per.connection", SAME),
    "compression": Java("compression.type", SAME),
    "compression_level": Java("compression.gzip.level, compression.lz4.level, compression.zstd.level", SAME),
    "delivery_timeout": Java("delivery.timeout.ms", SAME),
    "max_block": Java("max.block.ms", SAME),
    "auto_offset_reset": Java("auto.offset.reset", '`"latest"`'),
    "isolation_level": Java("isolation.level", '`"read_uncommitted"`'),
    "fetch_min_bytes": Java("fetch.min.bytes", SAME),
    "fetch_max_bytes": Java("fetch.max.bytes", SAME),
    "fetch_memory": Java(None),
    "fetch_max_wait": Java("fetch.max.wait.ms", SAME),
    "max_partition_fetch_bytes": Java("max.partition.fetch.bytes", SAME),
    "check_crcs": Java("check.crcs", SAME),
    "max_decompressed_size": Java(None),
    "group_id": Java("group.id", SAME),
    "group_instance_id": Java("group.instance.id", SAME),
    "session_timeout": Java("session.timeout.ms", SAME),
    "heartbeat_interval": Java("heartbeat.interval.ms", SAME),
    "max_poll_interval": Java("max.poll.interval.ms", SAME),
    "rebalance_timeout": Java(None),
    "auto_commit": Java("enable.auto.commit", SAME),
    "auto_commit_interval": Java("auto.commit.interval.ms", SAME),
    "acknowledgement_mode": Java("share.acknowledgement.mode", SAME),
    "acquire_mode": Java("share.acquire.mode", SAME),
    "max_fetch_records": Java("max.poll.records", SAME),
    "renew_locks_for": Java(None),
    "group_protocol": Java("group.protocol", SAME),
    "group_remote_assignor": Java("group.remote.assignor", SAME),
}

MEANING_OF_NONE = {
    "ssl_context": "made from the next settings",
    "ssl_cafile": "the system's certificates",
    "transactional_id": "no transactions",
    "idempotence": 'on with `acks="all"` and `retries` above 0',
    "compression_level": "the codec's own",
    "response_memory": "four times `max_response_size`",
    "fetch_memory": "`fetch_max_bytes` from each broker",
    "rebalance_timeout": "`max_poll_interval`",
    "group_remote_assignor": "the first strategy of the brokers",
}
"""The meaning of defaults that are None."""

HEAD = """# Settings

All settings are keyword arguments of the clients. Times are in seconds, sizes in bytes. A wrong setting raises
`ConfigurationError` in the constructor, which names the setting, what is allowed, and the given value. Java's names and
defaults are those of Kafka 4.3; a default in **bold** differs from this client's. This page is made from
`aiokafka_lite/settings/config.py` and `share/config.py` by `docs/list_settings.py`; change those, not the page.
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *(section(*configuration) for configuration in CONFIGURATIONS)])


def section(config: type, title: str, about: str) -> str:
    """Return the settings of one class."""
    purposes = docstrings(config)
    lines = [
        f"## {title}",
        "",
        *([about, ""] if about else []),
        "| setting | default | | in Java | its default |",
        "|---|---|---|---|---|",
        *(line(field, purposes[field.name]) for field in fields(config)),
        "",
    ]
    return "\n".join(lines)


def line(setting: Field[object], purpose: str) -> str:
    """Return one row of a table."""
    java = JAVA[setting.name]
    ours = default(setting)
    names = "—" if java.name is None else ", ".join(f"`{name}`" for name in java.name.split(", "))
    theirs = "" if java.name is None else ours if java.default is SAME else f"**{in_java(setting.name, java.default)}**"
    return f"| `{setting.name}` | {ours} | {purpose.replace('``', '`').replace('|', '&#124;')} | {names} | {theirs} |"


def in_java(name: str, value: object) -> str:
    """Return Java's default, where it differs."""
    return value if isinstance(value, str) else shown(name, value)


def default(setting: Field[object]) -> str:
    """Return the default to print, or "required"."""
    if setting.default is MISSING:
        return "required" if setting.default_factory is MISSING else shown(setting.name, setting.default_factory())
    if setting.default is None:
        return MEANING_OF_NONE.get(setting.name, "none")
    return shown(setting.name, setting.default)


def shown(name: str, value: object) -> str:
    """Return a value with its unit."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value * 1000:g} ms" if 0 < value < 0.1 else f"{value:g} s"
    if isinstance(value, Enum):
        return f'`"{value.name.lower()}"`'
    if isinstance(value, int):
        return size(value) if name.endswith(("_bytes", "_size", "_memory")) else str(value)
    return f'`"{value}"`' if value else "empty"


def size(number: int) -> str:
    """Return bytes in the largest unit that divides them."""
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if number >= unit and number % unit == 0:
            return f"{number // unit} {name}"
    return f"{number} byte{'s' if number != 1 else ''}"


def docstrings(config: type) -> dict[str, str]:
    """Return the docstring below each field. Python itself does not keep them, so they are read from the source."""
    (definition,) = ast.parse(inspect.getsource(config)).body
    assert isinstance(definition, ast.ClassDef)
    return dict(_documented(definition.body))


def _documented(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, following in pairwise(body):
        match field, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split())


def source_of(settings: type) -> Path:
    """Return the file of a class."""
    return Path(inspect.getfile(settings))


def with_docstrings(settings: type) -> str:
    """Return the source of the module of a class of ``HOVERED``, with the present docstrings below its fields."""
    source = source_of(settings).read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    (definition,) = (
        node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == settings.__name__
    )
    fields_by_name = {
        field.name: (docstrings(config)[field.name], field) for config in _CONFIGS for field in fields(config)
    }
    texts: dict[str, tuple[str, Field[object]]] = fields_by_name
    for statement, following in reversed([*pairwise([*definition.body, None])]):
        if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
            continue
        text, setting = texts[statement.target.id]
        end = statement.end_lineno
        if isinstance(following, ast.Expr):
            end = following.end_lineno
        value = f"``{setting.default}``" if isinstance(setting.default, bool) else default(setting).replace("`", "``")
        whole = f'"""{text} Default: {value}."""'
        wrapped = textwrap.wrap(whole, 116, break_long_words=False, break_on_hyphens=False)
        assert statement.end_lineno is not None
        lines[statement.end_lineno : end] = [f"    {line}\n" for line in wrapped]
    return "".join(lines)


_CONFIGS = tuple(config for config, _, _ in CONFIGURATIONS)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    for hovered in HOVERED:
        source_of(hovered).write_text(with_docstrings(hovered), encoding="utf-8")
