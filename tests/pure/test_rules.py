"""The rules of ``Workers``: which action follows a failed attempt, and which rules are refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest

from aiokafka_lite import Producer, Workers
from aiokafka_lite.errors import ConfigurationError, DeserializationError, KafkaTimeout
from aiokafka_lite.processing import BatchFailure, Rule, dead_letter, retry, retry_topic, skip, stop
from aiokafka_lite.processing.rules import Action, Again, Decide, Finish, Rules, SendTo, Stop
from aiokafka_lite.types import Record, TimestampType

RECORD: Record[Any, Any] = Record("orders", 0, 7, 0, TimestampType.CREATE_TIME, b"k", b"v")
RETRIED: Record[Any, Any] = RECORD._replace(topic="soon")
TOPICS = {"soon": 1.0, "later": 60.0}


class ValidationError(Exception):
    """Such as that of jsonschema."""


class Fatal(RuntimeError):
    pass


def decide(
    rules: Sequence[Rule | Decide], error: Exception, attempt: int = 1, record: Record[Any, Any] = RECORD
) -> Action:
    return asyncio.run(Rules(rules).decide(error, record, attempt))


@pytest.mark.parametrize(
    ("error", "attempt", "action"),
    [
        (Fatal(), 1, Stop()),
        (KeyError(), 1, Finish()),
        (TimeoutError(), 4, Again(0.1)),
        (TimeoutError(), 5, SendTo("soon", is_dead=False)),
        (KafkaTimeout("a subclass"), 4, Again(0.1)),
        (RuntimeError(), 1, SendTo("soon", is_dead=False)),
        (ValueError(), 1, SendTo("dead", is_dead=True)),
        (ValidationError(), 1, SendTo("dead", is_dead=True)),
        (TypeError(), 1, SendTo("dead", is_dead=True)),
        (DeserializationError("no", topic="orders", partition=0, offset=7), 1, SendTo("dead", is_dead=True)),
    ],
)
def test_the_first_rule_that_has_something_left_to_try_decides(error: Exception, attempt: int, action: Action) -> None:
    rules = [
        stop(Fatal),
        skip(LookupError),
        retry(TimeoutError, attempts=5, backoff=0.1, max_backoff=0.1),
        retry_topic(topics=TOPICS),
        dead_letter(topic="dead"),
    ]
    decided = decide(rules, error, attempt)
    if isinstance(action, Again):
        assert isinstance(decided, Again)
        assert 0.08 <= decided.seconds <= 0.1
    else:
        assert decided == action


def test_a_record_goes_through_the_retry_topics_in_their_order() -> None:
    rules = [retry_topic(topics=TOPICS), skip()]
    assert decide(rules, OSError(), record=RETRIED) == SendTo("later", is_dead=False)
    assert decide(rules, OSError(), record=RECORD._replace(topic="later")) == Finish()


def test_a_record_does_not_go_back_to_the_retry_topics_of_an_earlier_rule() -> None:
    rules = [
        retry_topic(ConnectionError, topics={"connection": 1.0}),
        retry_topic(OSError, topics={"connection": 1.0, "system": 1.0}),
        retry_topic(topics=TOPICS),
        dead_letter(topic="dead"),
    ]
    topics, record = [], RECORD
    while (action := decide(rules, ConnectionError(), record=record)) != SendTo("dead", is_dead=True):
        assert isinstance(action, SendTo)
        topics.append(action.topic)
        assert len(topics) <= 4, topics
        record = RECORD._replace(topic=action.topic)
    assert topics == ["connection", "system", "soon", "later"]


@pytest.mark.parametrize("error", [ValueError("v"), TypeError("t"), ValidationError()])
def test_an_error_that_another_attempt_does_not_cure_is_retried_only_by_name(error: Exception) -> None:
    assert decide([retry(), retry_topic(topics=TOPICS)], error) == Stop()
    assert isinstance(decide([retry(type(error))], error), Again)
    assert isinstance(decide([retry(Exception)], error), Again)


def test_without_a_rule_consume_ends() -> None:
    assert decide([], OSError()) == Stop()
    assert decide([skip(KeyError)], OSError()) == Stop()


def test_a_function_decides_by_error_record_and_attempt() -> None:
    seen = []

    def choose(error: Exception, record: Record[Any, Any], attempt: int) -> Rule | None:
        seen.append((str(error), record.offset, attempt))
        return retry(attempts=2) if attempt < 2 else None

    assert isinstance(decide([choose, skip()], ValueError("v")), Again)
    assert decide([choose, skip()], ValueError("v"), 2) == Finish()
    assert seen == [("v", 7, 1), ("v", 7, 2)]


def test_an_async_function_decides_too() -> None:
    async def choose(error: Exception, record: Record[Any, Any], attempt: int) -> Rule | None:
        await asyncio.sleep(0)
        return dead_letter(topic="own")

    assert decide([choose], OSError()) == SendTo("own", is_dead=True)


@pytest.mark.parametrize(
    ("result", "kind", "text"),
    [
        ("retry", TypeError, "must return a rule or None, but it returned 'retry'"),
        (retry_topic(topics={"new": 1.0}), ConfigurationError, "returned the retry topics new, which no rule in the"),
    ],
)
def test_a_function_with_a_wrong_result_is_named(result: Any, kind: type[Exception], text: str) -> None:
    def choose(error: Exception, record: Record[Any, Any], attempt: int) -> Rule | None:
        return result  # type: ignore[no-any-return]

    with pytest.raises(kind, match=f"the rule .*choose {text}"):
        decide([choose], OSError())


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ([skip(), retry()], "retry() does nothing, because skip() comes before it"),
        ([dead_letter(OSError, topic="d"), retry(TimeoutError)], "retry(TimeoutError) does nothing for TimeoutError, "),
        ([retry(OSError), retry(TimeoutError, attempts=9)], "because retry(OSError) comes before it; put the rule for"),
        ([retry_topic(OSError, topics=TOPICS), retry(OSError)], "because retry_topic(OSError) comes before it"),
        ([stop(OSError), skip(KeyError, OSError)], "skip(KeyError, OSError) does nothing for OSError"),
        ([retry(), retry()], "retry() does nothing, because retry() comes before it"),
        ([retry_topic(OSError, topics={"r": 1}), retry_topic(KeyError, topics={"r": 2})], "different delays for the"),
        ([retry_topic(topics={"d": 1}), dead_letter(topic="d")], "'d' cannot be both a retry topic and a dead-letter"),
        (["skip"], "rule 1 must be retry(...), retry_topic(...), dead_letter(...), skip(...), stop(...) or a function"),
        ([retry], "rule 1 must be retry(...), "),
        ([OSError], "rule 1 must be retry(...), "),
        (skip(), "rules must be a list of rules, such as [retry(), skip(KeyError)], got "),
    ],
)
def test_wrong_and_conflicting_rules_are_refused(rules: Any, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Rules(rules)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "rules",
    [
        [retry(TimeoutError, attempts=9), retry(OSError), skip(OSError), stop()],
        [skip(KeyError), retry(ValueError), dead_letter(topic="d")],
        [retry(), retry(ValueError, attempts=5)],
    ],
)
def test_rules_that_complete_one_another_are_accepted(rules: list[Rule]) -> None:
    assert Rules(rules).needs_producer is any("dead_letter" in str(rule) for rule in rules)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: retry("OSError"), "the errors of retry() must be subclasses of Exception, got 'OSError'"),  # type: ignore[arg-type]
        (lambda: skip(KeyboardInterrupt), "the errors of skip() must be subclasses of Exception, got "),  # type: ignore[arg-type]
        (lambda: retry(attempts=0), "attempts must be a whole number >= 1, got 0"),
        (lambda: retry(backoff=-1), "backoff must be a number of seconds >= 0, got -1"),
        (lambda: retry_topic(topics={}), "topics must be a mapping of topics to seconds, got {}"),
        (lambda: retry_topic(topics={"r": -1}), "topics['r'] must be a number of seconds >= 0, got -1"),
        (lambda: retry_topic(topics={"a b": 5}), "topics: topic name must consist of a-z, A-Z, 0-9"),
        (lambda: dead_letter(topic=""), 'topic: topic name must not be empty, "." or ".."'),
        (lambda: BatchFailure(-1, OSError()), "index must be a whole number >= 0, got -1"),
        (lambda: BatchFailure(0, "no"), "error must be an exception, got 'no'"),  # type: ignore[arg-type]
    ],
)
def test_a_rule_checks_its_arguments(make: Any, text: str) -> None:
    with pytest.raises((ConfigurationError, ValueError, TypeError)) as caught:
        make()
    assert text in str(caught.value)


async def good(record: object) -> None: ...


async def two(record: object, more: object) -> None: ...


def generator(record: object) -> Iterator[None]:
    yield


async def async_generator(record: object) -> AsyncIterator[None]:
    yield


class Plain:
    def __call__(self, record: object) -> None: ...


class Generator:
    def __call__(self, record: object) -> Iterator[None]:
        yield


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"handle": 5}, "handle must be a function of a record, got 5"),
        ({"handle": Plain}, "handle must be a function of a record, got "),
        ({"handle": Plain, "batch_size": 5}, "handle must be a function of a list of records, got "),
        ({"handle": generator}, "handle must not be a generator function, which does nothing when called: <function"),
        ({"handle": async_generator}, "handle must not be a generator function, which does nothing when called: <fun"),
        ({"handle": Generator()}, "handle must not be a generator function, which does nothing when called: <"),
        ({"handle": two}, "handle must take one argument, a record: missing a required argument: 'more'"),
        ({"handle": lambda: None}, "handle must take one argument, a record: too many positional arguments"),
        ({"handle": good, "batch_size": 0}, "batch_size must be a whole number >= 1, got 0"),
        ({"handle": good, "batch_size": 1001}, "batch_size=1001 must be at most max_pending=1000: no more records of"),
        ({"handle": good, "batch_size": 3, "max_pending": 2}, "batch_size=3 must be at most max_pending=2: no more"),
        ({"handle": good, "batch_timeout": 1.0}, "batch_timeout needs batch_size: without it, handle gets single"),
        ({"handle": good, "batch_size": 2, "batch_timeout": -1}, "batch_timeout must be a number of seconds >= 0, got"),
        ({"handle": good, "rules": [dead_letter(topic="d")]}, "retry_topic() and dead_letter() need a producer"),
        ({"handle": good, "producer": "localhost:9092"}, "producer must be a Producer, got "),
        ({"handle": good, "producer": Producer("a:9", transactional_id="t")}, "producer must have no transactional_id"),
        ({"handle": good, "producer": Producer("a:9", acks=0)}, "producer must not have acks=0: a record is finished"),
    ],
)
def test_workers_refuse_a_wrong_handle_and_wrong_arguments(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises((ConfigurationError, ValueError)) as caught:
        Workers(**arguments)
    assert text in str(caught.value)


def test_the_retry_topics_are_those_of_the_rules() -> None:
    workers: Workers[bytes, bytes] = Workers(
        good, rules=[retry_topic(topics=TOPICS), skip()], producer=Producer("localhost:9")
    )
    assert workers.retry_topics == ["soon", "later"]
