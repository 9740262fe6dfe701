"""The errors for calls in the form of another client, or without ``async``.

``setting_names`` has the errors for settings of other clients.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, Never

from . import disclosure
from .arguments import shown
from .types import TopicPartition

PRODUCER = {
    "stop": "close()",
    "send_and_wait": "send(), which returns when the record is acknowledged",
    "send_batch": "send_many()",
    "create_batch": "send_many()",
    "produce": "send_nowait(), put() or send()",
    "produce_batch": "send_many()",
    "purge": "abort_transaction(), or close(timeout=0)",
    "poll": "nothing: the event loop delivers results; await the Delivery",
    "list_topics": "partitions_for(topic), or Admin",
    "init_transactions": "start(), which does it if transactional_id is set",
    "bootstrap_connected": "health()",
    "cluster_id": "Admin, whose cluster.describe() has it",
    "set_sasl_credentials": "another client with the new password",
}
CONSUMER = {
    "stop": "close()",
    "getone": "await anext(consumer), or 'async for record in consumer'",
    "getmany": "poll(max_records=500, timeout=1.0), which returns one list",
    "consume": "poll(max_records=500, timeout=1.0)",
    "workers": "ConsumerGroup(...).consume(topics, Workers(handle))",
    "last_stable_offset": "lag(), or offsets_for_times()",
    "get_watermark_offsets": "beginning_offsets([partition]) and end_offsets([partition])",
    "store_offsets": "mark(record)",
    "list_topics": "topics(), or Admin",
    "consumer_group_metadata": "group_metadata()",
    "seek_to_committed_offsets": "seek_to_committed()",
    "partitions_for_topic": "partitions_for(topic)",
    "offsets_for_time": "offsets_for_times({partition: milliseconds})",
    "highwater": "high_watermark(partition)",
    "last_poll_timestamp": "metrics().group.last_poll_ago",
    "bootstrap_connected": "health()",
    "memberid": "group_metadata().member_id",
    "commit_async": "commit(); make a task of it to continue meanwhile",
    "unassign": "assign([])",
    "incremental_assign": "assign(), with all partitions",
    "incremental_unassign": "assign(), with the other partitions",
    "cluster_id": "Admin, whose cluster.describe() has it",
    "set_sasl_credentials": "another client with the new password",
}
CONSUMER_GROUP = {
    "start": "consume(topics, handler), which also joins the group",
    "run": "consume(topics, handler)",
    "subscribe": "consume(topics, handler)",
    "stop": "close()",
    "getone": "Consumer, or consume(topics, handler)",
    "getmany": "Consumer, or consume(topics, handler)",
    "poll": "Consumer, or consume(topics, handler)",
    "commit": "commit() of the session, which the handler gets",
    "mark": "mark(record) of the session, which the handler gets",
    "assignment": "claims of the session, which the handler gets",
    "group_metadata": "group_metadata() of the session, which the handler gets",
    "seek": "session.offsets.reset(partition, offset) in the handler's setup()",
    **dict.fromkeys(("pause", "resume", "position", "lag", "assign", "add_listener"), "Consumer, which has it"),
}
SHARE_CONSUMER = {
    "stop": "close()",
    "getone": "await anext(consumer), or 'async for record in consumer'",
    "getmany": "poll(max_records=500, timeout=1.0), which returns one list",
    "consume": "poll(max_records=500, timeout=1.0)",
    "subscribe": "topics of the constructor",
    "acknowledge": "accept(record), release(record) or reject(record)",
    "mark": "accept(record), release(record) or reject(record)",
    "commit_sync": "commit()",
    "commit_async": "commit_nowait()",
    **dict.fromkeys(
        ("assign", "seek", "position", "pause", "committed"),
        "Consumer: the brokers choose the records of a share group",
    ),
}
SCHEMA_REGISTRY = {
    "register_schema": "register(subject, schema)",
    "register_schema_full_response": "register(subject, schema)",
    "lookup_schema": "lookup(subject, schema)",
    "get_schema": "by_id(schema_id)",
    "get_schema_by_guid": "by_guid(guid)",
    "get_version": "by_version(subject, version)",
    "get_latest_version": "latest(subject)",
    "get_subjects": "subjects()",
    "get_versions": "versions(subject)",
    "test_compatibility": "check_compatibility(subject, schema)",
    "get_compatibility": "compatibility(subject)",
    "get_config": "compatibility(subject)",
    "set_config": "set_compatibility(level, subject)",
    "get_mode": "mode(subject)",
}
DELIVERY = {
    "get": "await delivery, or result() when done() is True",
    "cancel": "nothing: an accepted record is sent in any case",
    **dict.fromkeys(("offset", "partition", "timestamp"), "await delivery, which returns a RecordMetadata"),
    **dict.fromkeys(("add_callback", "add_errback"), "report(function), which calls function(metadata, error)"),
    "add_done_callback": "report(function), or future(), which asyncio.wait accepts too",
    "succeeded": "done(), and exception() is None",
    "failed": "done(), and exception() is not None",
}
TRANSACTION = {
    "commit": "nothing: leaving 'async with' commits",
    "abort": "an exception in the body, or producer.abort_transaction()",
    "flush": "producer.flush()",
    "send_offsets_to_transaction": "send_offsets(offsets, group_metadata)",
}
ADMIN = {
    "create_topics": "topics.create()",
    "delete_topics": "topics.delete()",
    "list_topics": "topics.list()",
    "describe_topics": "topics.describe()",
    "create_partitions": "topics.add_partitions()",
    "describe_configs": "configs.describe()",
    "alter_configs": "configs.alter()",
    "incremental_alter_configs": "configs.alter()",
    "list_groups": "groups.list()",
    "list_consumer_groups": "groups.list()",
    "describe_consumer_groups": "groups.describe()",
    "delete_consumer_groups": "groups.delete()",
    "list_consumer_group_offsets": "groups.offsets()",
    "alter_consumer_group_offsets": "groups.alter_offsets()",
    "list_offsets": "offsets.list()",
    "delete_records": "records.delete()",
    "describe_cluster": "cluster.describe()",
    "describe_acls": "acls.describe()",
    "create_acls": "acls.create()",
    "delete_acls": "acls.delete()",
    "find_coordinator": "groups.coordinators()",
    "describe_groups": "groups.describe()",
    "delete_groups": "groups.delete()",
    "list_group_offsets": "groups.offsets()",
    "alter_group_offsets": "groups.alter_offsets()",
    "reset_group_offsets": "groups.reset_offsets()",
    "delete_group_offsets": "groups.delete_offsets()",
    "remove_group_members": "groups.remove_members()",
    "list_partition_offsets": "offsets.list()",
    "describe_topic_partitions": "topics.pages()",
    "list_config_resources": "configs.list()",
    "reset_configs": "configs.alter()",
    "elect_leaders": "leaders.elect()",
    "alter_partition_reassignments": "reassignments.alter()",
    "list_partition_reassignments": "reassignments.list()",
    "describe_log_dirs": "log_dirs.describe()",
    "alter_replica_log_dirs": "log_dirs.alter()",
    "describe_user_scram_credentials": "users.describe()",
    "alter_user_scram_credentials": "users.set_passwords()",
    "describe_features": "cluster.features()",
    "update_features": "cluster.update_features()",
    "describe_metadata_quorum": "cluster.quorum()",
    "api_versions": "cluster.api_versions()",
    "get_broker_version_data": "cluster.api_versions()",
    "cluster_id": "cluster.describe()",
    "list_transactions": "transactions.list()",
    "describe_transactions": "transactions.describe()",
    "describe_producers": "transactions.describe_producers()",
    "find_hanging_transactions": "transactions.find_hanging()",
    "abort_transaction": "transactions.abort()",
}
"""Methods of aiokafka, kafka-python, confluent-kafka and Java's client, and what to use instead."""

_ALL = {
    "raw": "use to_dict() of the result",
    "null_logger": "remove it",
    "include_authorized_operations": "remove it",
}
"""Arguments of other clients, for every method of this package, and what to do instead."""

_TIMEOUT = ("timeout, in seconds",)
_RENAMED = {
    "timeout_ms": _TIMEOUT,
    "timeout_s": _TIMEOUT,
    "timeout_seconds": _TIMEOUT,
    "request_timeout": _TIMEOUT,
    "request_timeout_ms": _TIMEOUT,
    "operation_timeout": _TIMEOUT,
    "api_timeout": _TIMEOUT,
    "dry_run": ("validate_only",),
    "validate_only": ("dry_run",),
    "num_messages": ("max_records",),
    "max_messages": ("max_records",),
    "include_synonyms": ("synonyms",),
    "include_documentation": ("documentation",),
    "include_internal": ("internal",),
    "list_internal": ("internal",),
    "exclude_internal_topics": ("internal",),
    "config_resources": ("resources", "changes"),
    "new_topics": ("topics",),
    "topic_names": ("topics",),
    "topic_partitions": ("partitions", "totals"),
    "new_partitions": ("totals",),
    "group_id": ("group", "groups"),
    "group_ids": ("groups", "group"),
    "consumer_groups": ("groups",),
    "broker_id": ("broker", "node_id", "brokers"),
    "broker_ids": ("brokers",),
    "records_to_delete": ("before",),
    "states_filter": ("states",),
    "types_filter": ("types",),
    "election_type": ("election",),
}
"""Arguments of other clients, and the arguments here with the same meaning. A method takes at most one of them."""

_MANY = 5
"""The number of names that an error does not list."""

BY_POSITION = "*"
"""The key of the advice for an argument that is given by position."""

SEND = {
    "timestamp_ms": "use timestamp, in milliseconds",
    "callback": "use send_nowait(...).report(function), which calls function(metadata, error)",
    "on_delivery": "use send_nowait(...).report(function), which calls function(metadata, error)",
}
"""Arguments of other clients for ``send``, ``send_nowait`` and ``put`` of ``Producer``, and what to do instead."""

PRODUCER_ARGUMENTS: dict[str, dict[str, str]] = {
    "send": SEND,
    "send_nowait": SEND,
    "put": SEND,
    "send_offsets_to_transaction": {"group_id": "use group_metadata, which consumer.group_metadata() returns"},
}
_LISTENER = "pass listener, a RebalanceListener, to the constructor or to add_listener()"
_ONE_PARTITION = {"partition": "use partitions, a list"}
CONSUMER_ARGUMENTS = {
    "poll": {"update_offsets": "remove it: positions always move with the records"},
    "commit": {
        "message": "mark(record), then call commit() without arguments",
        "asynchronous": "await commit(), or make a task of it",
    },
    "committed": {"metadata": "each result has it", **_ONE_PARTITION},
    "position": {"partitions": "use partition, which is one TopicPartition"},
    "offsets_for_times": {"partitions": "use timestamps, a dict of TopicPartition to milliseconds"},
    "pause": _ONE_PARTITION,
    "resume": _ONE_PARTITION,
    "subscribe": {
        "pattern": "use topics=re.compile(pattern)",
        "listener": _LISTENER,
        "on_assign": _LISTENER,
        "on_revoke": _LISTENER,
        "on_lost": _LISTENER,
    },
    "close": {"autocommit": "call commit() before, or pass auto_commit=False to the constructor"},
}
"""Arguments of other clients for other methods, and what to do instead."""


class AsyncContext:
    """A base class of objects for ``async with``. Type checkers do not see its methods: they report ``with``.

    Such a class is a subclass of ``contextlib.AbstractContextManager`` for ``issubclass``, although ``with`` raises.
    """

    __slots__ = ()

    if not TYPE_CHECKING:

        def __enter__(self) -> Never:
            raise TypeError(f"{type(self).__name__} must be used in 'async with', got 'with'")

        def __exit__(self, *error: object) -> None: ...  # Python looks for it before it calls __enter__

    def __reduce__(self) -> Never:
        name = type(self).__name__
        raise TypeError(f"{name} cannot be pickled or copied, as it has connections and tasks: create another one")


class AsyncIteration:
    """A base class of objects for ``async for``. Type checkers do not see its methods: they report ``for``.

    Such a class is a subclass of ``collections.abc.Iterator`` for ``issubclass``, although ``for`` and ``next`` raise.
    """

    __slots__ = ()

    if not TYPE_CHECKING:

        def __iter__(self) -> Never:
            raise TypeError(f"{type(self).__name__} must be read with 'async for', which 'for' and list() cannot do")

        def __next__(self) -> Never:
            raise TypeError(f"{type(self).__name__} must be read with 'await anext(...)' or 'async for', got next()")


class _Missing:
    """A descriptor that raises the AttributeError for a method of another client.

    A ``__getattr__`` of the class would make each access to an attribute of a client 90 ns slower.
    """

    def __init__(self, name: str, instead: str) -> None:
        self._name = name
        self._instead = instead

    def __get__(self, client: object, owner: type) -> Never:
        text = f"{owner.__name__!r} object has no attribute {self._name!r}; use {self._instead}"
        raise AttributeError(text, name=self._name, obj=client)


class PropertyPartitions(tuple[TopicPartition, ...]):
    """The partitions that a property returns. In other clients, ``assignment`` and ``paused`` are methods."""

    __slots__ = ()

    def __call__(self) -> Never:
        raise TypeError("assignment and paused are properties; use them without parentheses")


def checks_topics(make: Callable[..., None]) -> Callable[..., None]:
    """Decorate a constructor for which other clients accept topics as positional arguments."""

    @wraps(make)
    def construct(client: object, *given: object, **named: object) -> None:
        if len(given) > 1 or (given and "bootstrap_servers" in named):
            servers, topics = named.get("bootstrap_servers", "host:port"), list(given)
            if "bootstrap_servers" not in named and ":" in str(given[0]):  # an address: the topics follow it
                servers = topics.pop(0)
            if len(topics) == 1 and isinstance(topics[0], (list, tuple, set)):
                topics = list(topics[0])
            name = type(client).__name__
            at = disclosure.addresses(servers)
            # One of the topics may be a secret that was given by position.
            is_plain = all(isinstance(topic, str) and re.fullmatch(r"[a-z0-9._-]+", topic) for topic in topics)
            names = repr(topics) if is_plain else "[...]"
            raise TypeError(f"topics must be given by name: use {name}({at}, topics={names})")
        make(client, *given, **named)

    return construct


def other_argument(method: str, given: Iterable[str], instead: Mapping[str, str], takes: Collection[str]) -> TypeError:
    """Return the error for an argument that a method does not have. ``takes`` has the arguments of the method."""
    name = next(each for each in given if each not in takes)
    return TypeError(
        f"{name} is not an argument of {method}(); {({**_ALL, **instead}).get(name) or _counterpart(name, takes)}"
    )


def _counterpart(name: str, takes: Collection[str]) -> str:
    for each in _RENAMED.get(name, ()):
        if each.partition(",")[0] in takes:
            return f"use {each}"
    from difflib import get_close_matches  # imported here, because most programs do not need it

    near = get_close_matches(name, takes, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"it takes {', '.join(takes) or 'no arguments'}"


_NEW_TOPIC = "pass NewTopic(name, partitions=3, replication_factor=3, configs={...})"
TOPICS_ARGUMENTS = {
    "create": dict.fromkeys(
        (BY_POSITION, "partitions", "num_partitions", "replication_factor", "configs", "topic_configs"), _NEW_TOPIC
    )
}
WORKERS = {
    "handler": "use handle",
    "on_error": "use on_failure",
    "retries": "use attempts, which counts the first one",
    **dict.fromkeys(("max_concurrency", "max_workers", "workers"), "use concurrency"),
}
EMBEDDED_CLUSTER = {
    "partitions": "use default_partitions",
    **dict.fromkeys(("nodes", "num_brokers", "broker_count"), "use brokers"),
}
NEW_TOPIC = {
    "topic": "use name",
    "num_partitions": "use partitions",
    "config": "use configs",
    "topic_configs": "use configs",
    "replica_assignment": "use assignments",
    "replica_assignments": "use assignments",
}


def wrong_send(method: str, given: Sequence[object], named: Mapping[str, object]) -> TypeError:
    """Return the error for arguments after ``value`` that are given by position, or for arguments that no send has."""
    if given:
        return TypeError(
            f"{method}() takes only topic and value by position; pass other arguments by name, such as key=..."
        )
    takes = ("key", "headers", "partition", "timestamp") + (("timeout",) if method != "send_nowait" else ())
    instead = SEND if "timeout" in takes else {**SEND, "timeout": "use put() or send(), which wait"}
    return other_argument(method, named, instead, takes)


def _too_many(
    name: str,
    given: Sequence[object],
    takes: Sequence[str],
    places: int,
    instead: Mapping[str, str],
    takes_settings: bool = False,
) -> TypeError:
    """Return the error for a call with more positional arguments than ``places``. ``takes`` has the names of all
    arguments.
    """
    first, names = " and ".join(takes[:places]), takes[places:]
    named = " and ".join(names) if len(names) < _MANY else "other arguments"
    # A constructor that takes settings, and a method with passwords, may get a secret by position.
    is_open = takes_settings or any(map(disclosure.may_hold_secret, takes))
    hides = is_open and not disclosure.resembles(given[places], "")
    value = disclosure.kind(given[places]) if hides else shown(given[places])
    text = f"{name}() takes {f'only {first}' if first else 'nothing'} by position, got {value} as well"
    advice = instead.get(BY_POSITION) or (f"pass {named} by name" if named else "remove it")
    return TypeError(f"{text}; {advice}")


def _checks_arguments(call: Callable[..., Any], instead: Mapping[str, str]) -> Callable[..., Any]:
    code = call.__code__  # inspect.signature() is 20 times slower, and imports of the package would take longer
    takes = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    places = code.co_argcount - 1 if not code.co_flags & inspect.CO_VARARGS else sys.maxsize
    known = frozenset(takes)
    takes_one_list = takes[:1] == ("partitions",)

    def check(given: Sequence[object], named: Mapping[str, object]) -> None:
        if not known.issuperset(named):
            raise other_argument(call.__name__, named, instead, takes)
        if takes_one_list and len(given) > 1:
            raise TypeError(f"{call.__name__}() takes partitions as one list: pass [partition, ...]")
        if len(given) > places:
            raise _too_many(call.__name__, given, takes, places, instead)

    if code.co_flags & inspect.CO_COROUTINE:

        @wraps(call)
        async def checked(client: object, *given: object, **named: object) -> Any:
            check(given, named)
            return await call(client, *given, **named)

    else:

        @wraps(call)
        def checked(client: object, *given: object, **named: object) -> Any:
            check(given, named)
            return call(client, *given, **named)

    return checked


def explain(
    client: type,
    instead: Mapping[str, str] | None = None,
    arguments: Mapping[str, Mapping[str, str]] | None = None,
    *,
    each_record: Collection[str] = (),
) -> None:
    """Let a class explain methods and arguments that it does not have.

    - ``instead`` has methods of other clients. Their use raises AttributeError, and ``dir()`` does not list them.
    - A wrong argument of a public method raises TypeError, which names the argument to use: by ``arguments``, or by its
      meaning in other clients. An async method raises it when it is awaited.
    - Methods in ``each_record`` are not checked, because programs call them for each record.
    - ``send``, ``send_nowait`` and ``put`` are not wrapped for the same reason. They collect wrong arguments as
      ``*more`` and ``**other``, which their signatures hide, and raise ``wrong_send`` themselves.
    """
    if instead:
        explain_methods(client, instead)
    for name, call in _methods(client).items():
        code = call.__code__
        if "other" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + 2]:
            signature = inspect.signature(call)
            shown = [
                parameter for parameter in signature.parameters.values() if parameter.name not in ("more", "other")
            ]
            call.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        elif not code.co_flags & inspect.CO_VARKEYWORDS and name not in each_record:
            setattr(client, name, _checks_arguments(call, (arguments or {}).get(name, {})))


def explain_methods(owner: type, instead: Mapping[str, str]) -> None:
    """Let a class explain methods that it does not have, as ``explain`` does, and nothing else."""
    for name, use in instead.items():
        assert not hasattr(owner, name), f"{owner.__name__} has {name}, which would be replaced"
        setattr(owner, name, _Missing(name, use))

    def names(self: object) -> list[str]:
        every = super(owner, self).__dir__()  # type: ignore[arg-type]  # mypy takes no class from an argument
        return sorted(name for name in every if not isinstance(inspect.getattr_static(self, name, None), _Missing))

    setattr(owner, "__dir__", names)  # noqa: B010 - for mypy


def checks_constructor(client: Any, instead: Mapping[str, str] | None = None) -> None:
    """Let the constructor of a class explain arguments that it does not have. ``instead`` says what to use for some."""
    make, name, use = client.__init__, client.__name__, instead or {}
    code = make.__code__
    takes = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    places = code.co_argcount - 1
    has_default = {*takes[places - len(make.__defaults__ or ()) : places], *(make.__kwdefaults__ or ())}
    required = [take for take in takes if take not in has_default]
    known = None if code.co_flags & inspect.CO_VARKEYWORDS else frozenset(takes)  # settings have checks of their own

    @wraps(make)
    def construct(self: object, *given: object, **named: object) -> None:
        if known is not None and not known.issuperset(named):
            raise other_argument(name, named, use, takes)
        if len(given) > places:
            raise _too_many(name, given, takes, places, use, takes_settings=known is None)
        if twice := [take for take in takes[: len(given)] if take in named]:
            raise TypeError(f"{name}() got {twice[0]} twice: by position and by name")
        if missing := [each for each in required if each not in named and each not in takes[: len(given)]]:
            others = f", got only {', '.join(named)}" if named else ""
            raise TypeError(f"{name}() requires {' and '.join(missing)}{others}")
        make(self, *given, **named)

    client.__init__ = construct


def _methods(client: type) -> dict[str, FunctionType]:
    """Return the public methods of a class, also inherited ones."""
    return {
        name: value
        for each in reversed(client.__mro__)
        for name, value in vars(each).items()
        if isinstance(value, FunctionType) and not name.startswith("_")
    }
