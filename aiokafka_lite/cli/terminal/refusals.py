"""Explains refusals by ACLs: the brokers do not say which user lacks which operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
)

_RESOURCES = {
    TOPIC: "the topic",
    GROUP: "the group",
    CLUSTER: "the cluster",
    TRANSACTIONAL_ID: "the transactional id",
}

OPERATIONS: Mapping[str, Mapping[str, str]] = {
    "produce": {TOPIC: "write", CLUSTER: "idempotent-write", TRANSACTIONAL_ID: "write"},
    "consume": {TOPIC: "read", GROUP: "read"},
    "sql": {TOPIC: "read"},
    "redrive": {TOPIC: "read (dead letters) or write (origins)", GROUP: "read", CLUSTER: "idempotent-write"},
    "bench": {TOPIC: "create, write, read and delete", CLUSTER: "create"},
    "topics create": {TOPIC: "create", CLUSTER: "create"},
    "topics alter": {TOPIC: "alter (for partitions) or alter-configs (for settings)"},
    "topics delete": {TOPIC: "delete"},
    "configs describe": {TOPIC: "describe-configs", CLUSTER: "describe-configs", GROUP: "describe-configs"},
    "configs alter": {TOPIC: "alter-configs", CLUSTER: "alter-configs", GROUP: "alter-configs"},
    "records delete": {TOPIC: "delete"},
    "groups reset-offsets": {GROUP: "read", TOPIC: "read"},
    "groups delete": {GROUP: "delete"},
    "groups delete-offsets": {GROUP: "delete", TOPIC: "read"},
    "groups remove-member": {GROUP: "read"},
    "share-groups reset-offsets": {GROUP: "read", TOPIC: "read"},
    "share-groups delete": {GROUP: "delete"},
    "quotas list": {CLUSTER: "describe-configs"},
    "quotas alter": {CLUSTER: "alter-configs"},
    "acls add": {CLUSTER: "alter"},
    "acls remove": {CLUSTER: "alter"},
    "users add": {CLUSTER: "alter"},
    "users remove": {CLUSTER: "alter"},
    "elect-leaders": {CLUSTER: "alter"},
    "reassign start": {CLUSTER: "alter"},
    "reassign cancel": {CLUSTER: "alter"},
    "transactions abort": {CLUSTER: "alter"},
    "transactions fence": {TRANSACTIONAL_ID: "write", CLUSTER: "idempotent-write"},
    "transactions describe-producers": {TOPIC: "read"},
    "transactions find-hanging": {TOPIC: "read"},
}
"""The operation that each command needs, by its name and the error. Any other command needs ``describe``."""


@dataclass(frozen=True, slots=True)
class _Context:
    """The running command, and the function that returns the properties of its connection."""

    command: str
    properties: Callable[[], Mapping[str, str]]


_running: ContextVar[_Context | None] = ContextVar("running command", default=None)


@contextmanager
def refusals_of(command: str, properties: Callable[[], Mapping[str, str]]) -> Iterator[None]:
    """Let ``explained_refusal`` name the user and the operation of this command while the body runs."""
    token = _running.set(_Context(command, properties))
    try:
        yield
    finally:
        _running.reset(token)


def explained_refusal(error: BaseException) -> str:
    """Return the text of an error; that of a refusal by ACLs with the user and the operation that the command needs."""
    from ...errors import AuthorizationError

    text = str(error) or repr(error)
    running = _running.get()
    if running is None or not isinstance(error, AuthorizationError) or error.code.name not in _RESOURCES:
        return text
    operation = OPERATIONS.get(running.command, {}).get(error.code.name, "describe")
    resource = _RESOURCES[error.code.name]
    return f"{text}; {_user(running.properties())} needs the operation {operation} on {resource}"


def _user(properties: Mapping[str, str]) -> str:
    from ...settings.properties import client_settings

    settings = client_settings(properties)
    if name := settings.get("sasl_username"):
        return f"the user {name}"
    protocol = str(settings.get("security_protocol", "PLAINTEXT"))
    if protocol.startswith("SASL"):
        return "the user of the login"
    if protocol == "SSL":
        return "the user of the client's certificate"
    return "the user ANONYMOUS (a connection without a login)"
