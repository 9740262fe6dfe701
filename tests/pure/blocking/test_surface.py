"""The blocking classes have the calls of the asyncio classes, and their files are made from them."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import make_blocking
import pytest

import aiokafka_lite
import aiokafka_lite.blocking
import aiokafka_lite.consumer
import aiokafka_lite.consumer.group.consumer_group
import aiokafka_lite.consumer.iteration
import aiokafka_lite.group.offsets
import aiokafka_lite.producer
from aiokafka_lite.compiled import COMPILED
from aiokafka_lite.errors import ConfigurationError

ASYNCIO: dict[str, Any] = {
    **{name: getattr(aiokafka_lite, name) for name in aiokafka_lite.__all__},
    **{name: getattr(aiokafka_lite.producer, name) for name in aiokafka_lite.producer.__all__},
    **vars(aiokafka_lite.consumer.iteration),
    **{name: getattr(aiokafka_lite.consumer, name) for name in aiokafka_lite.consumer.__all__},
    "GroupErrors": aiokafka_lite.consumer.group.consumer_group.GroupErrors,
    "Offsets": aiokafka_lite.group.offsets.Offsets,
}
RENAMED = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "__await__": "wait",
}
NOT_FOR_PROGRAMS = {
    "Producer": {"acceptor"},
    "Transaction": {"acceptor"},
    "ArrowBatches": {"start", "take_ready"},
    "Batches": {"take_ready"},
    "BulkDelivery": {"add"},
    "Claim": {"decoded"},
    "Consumer": {"take_ready"},
    "ConsumerGroupSession": {"has_outdated"},
    "Delivery": {"batch_result", "is_final", "report_in"},
    "Failures": {"add", "end"},
    "Offsets": {
        *("begin", "begin_at", "commit_marked", "drop_refused", "forget", "last_marked", "leave_to_transactions"),
        *("located", "may_go_back", "refuse", "run"),
    },
    "PartitionReader": {"decoded"},
    "RecordIteration": {"cursor"},
    "Workers": {"setup", "consume_claim", "cleanup", "before_commit"},
}
"""What other modules of the package use."""

INTERNAL = {
    "Delivery": {"call_back", "callback", "inner"},
    "Producer": {"asynchronous"},
    "Workers": {"handler", "setup", "consume_claim", "cleanup", "before_commit"},
}

OTHER_SIGNATURES = {
    ("Delivery", "wait"): "(self, timeout: 'float | None' = None) -> 'RecordMetadata'",
    ("Delivery", "future"): "(self) -> 'Future[RecordMetadata]'",
}
"""Calls that differ, as there is no ``asyncio.wait_for`` and no ``asyncio.Future`` for threads."""

NAMES = [name for name in aiokafka_lite.blocking.__all__ if name in ASYNCIO]


def calls(kind: type) -> dict[str, Any]:
    return {
        name: inspect.getattr_static(kind, name)
        for name in dir(kind)
        if not name.startswith("_") or (name in {*RENAMED, *RENAMED.values()} and not hasattr(object, name))
    }


def signature(function: Any) -> str:
    if isinstance(function, property):
        function = function.fget
    text = str(inspect.signature(function))
    return re.sub("-> '(ShareConsumer.*|Failures|RecordIteration.*|Self)'", "-> 'Self'", text)


@pytest.mark.parametrize("name", NAMES)
def test_a_blocking_class_has_every_call_of_its_asyncio_class(name: str) -> None:
    ours, theirs = calls(getattr(aiokafka_lite.blocking, name)), calls(ASYNCIO[name])
    expected = set()
    for call, function in theirs.items():
        if call in NOT_FOR_PROGRAMS.get(name, ()):
            continue
        expected.add(RENAMED.get(call, call))
        blocking = ours.get(RENAMED.get(call, call))
        assert blocking is not None, f"{name}.{call} is missing"
        assert not inspect.iscoroutinefunction(blocking), call
        if COMPILED and name == "Delivery":
            continue  # a compiled method shows no annotations
        if (name, call) in OTHER_SIGNATURES:
            assert signature(blocking) == OTHER_SIGNATURES[name, call]
        elif call not in RENAMED and (callable(function) or isinstance(function, property)):
            assert signature(blocking) == signature(function), call
            assert isinstance(blocking, property) == isinstance(function, property), call
    assert ours.keys() - INTERNAL.get(name, set()) == expected, "calls that the asyncio class has not"


@pytest.mark.parametrize("name", ["Admin", "Consumer", "ConsumerGroup", "Producer", "ShareConsumer", "Workers"])
def test_a_client_is_made_with_the_same_arguments(name: str) -> None:
    ours, theirs = getattr(aiokafka_lite.blocking, name), ASYNCIO[name]
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))


@pytest.mark.parametrize("name", ["Admin", "Consumer", "ConsumerGroup", "Producer", "ShareConsumer", "Workers"])
def test_each_argument_reaches_the_asyncio_class(name: str) -> None:
    ours, theirs = getattr(aiokafka_lite.blocking, name), ASYNCIO[name]
    first = print if name == "Workers" else "localhost:9092"
    required = {"group_id": "readers"} if name in ("ConsumerGroup", "ShareConsumer") else {}

    def refusal(kind: type, argument: str) -> type[BaseException]:
        with pytest.raises((ConfigurationError, TypeError, ValueError)) as raised:
            kind(first, **{**required, argument: object()})
        return raised.type

    for parameter in inspect.signature(theirs).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            assert refusal(ours, parameter.name) is refusal(theirs, parameter.name), parameter.name


@pytest.mark.skipif(not Path(sys.executable).with_name("ruff").exists(), reason="ruff comes with the group test")
@pytest.mark.parametrize("file", make_blocking.FILES, ids=lambda file: file.name)
def test_the_files_are_made_from_the_asyncio_classes(file: make_blocking.File) -> None:
    current = (make_blocking.BLOCKING / file.name).read_text(encoding="utf-8")
    assert current == make_blocking.source(file), "run python docs/make_blocking.py"


@pytest.mark.parametrize("file", make_blocking.FILES, ids=lambda file: file.name)
def test_the_docstrings_are_about_threads(file: make_blocking.File) -> None:
    text = (make_blocking.BLOCKING / file.name).read_text(encoding="utf-8")
    assert re.findall(r"\bawait\b|\basync (?:with|for|def)\b|Call \w+ in the event loop", text) == []


def test_every_family_of_the_admin_client_has_its_calls() -> None:
    ours, theirs = aiokafka_lite.blocking.Admin("localhost:9092"), aiokafka_lite.Admin("localhost:9092")
    families = {name: family for name, family in vars(theirs).items() if not name.startswith("_")}
    assert families
    for name, family in families.items():
        blocking = calls(type(getattr(ours, name)))
        for call, function in calls(type(family)).items():
            assert signature(blocking.pop(call)) == signature(function), f"{name}.{call}"
        assert blocking == {}


def test_a_name_of_another_client_is_an_error_that_says_what_to_use() -> None:
    producer = aiokafka_lite.blocking.Producer("localhost:9092")
    with pytest.raises(AttributeError, match=r"'Producer' object has no attribute 'produce'; use send_nowait\(\)"):
        producer.produce  # type: ignore[attr-defined]  # noqa: B018
    consumer = aiokafka_lite.blocking.Consumer("localhost:9092")
    with pytest.raises(AttributeError, match="use next\\(consumer\\), or 'for record in consumer'"):
        consumer.getone  # type: ignore[attr-defined]  # noqa: B018
