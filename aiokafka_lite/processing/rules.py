"""The rules of ``Workers``: what happens to a record whose attempt has failed. Pure, except the user's functions.

Rules are tried in their order. The first rule that matches the error and has something left to try decides:
``retry`` passes the record on to the next matching rule after its last attempt, and ``retry_topic`` after its last
topic. ``dead_letter``, ``skip`` and ``stop`` are final. Without a matching rule, ``consume`` ends with the error.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..aio.retry import Backoff
from ..arguments import check_seconds, must_be, shown, whole
from ..cluster.topics import problem_of_topic_name
from ..consumer.group.callbacks import wait
from ..errors import ConfigurationError, SerializationError
from ..types import Record

PERMANENT = (SerializationError, TypeError, ValueError)
"""Errors that another attempt does not cure. ``retry()`` and ``retry_topic()`` match them only if their class is
named."""


def is_permanent(error: type[Exception]) -> bool:
    """Return whether another attempt does not cure errors of this class, as far as the class says.

    Some libraries derive their ``ValidationError`` from Exception, such as jsonschema and Django.
    """
    return issubclass(error, PERMANENT) or any(base.__name__ == "ValidationError" for base in error.__mro__)


@dataclass(frozen=True, slots=True)
class Again:
    """Process the record again after a pause."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SendTo:
    """Send the record to another topic, and finish it."""

    topic: str
    is_dead: bool


@dataclass(frozen=True, slots=True)
class Finish:
    """Log the error, and finish the record."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End ``consume`` with the error. The record is not committed."""


Action = Again | SendTo | Finish | Stop


@dataclass(frozen=True, slots=True)
class Rule:
    """What happens to records that failed with one of these errors. Made by ``retry``, ``dead_letter`` and so on."""

    errors: tuple[type[Exception], ...]
    name: ClassVar[str]
    rank: ClassVar[int] = 2
    """The order in which rules for the same error make sense: retry, then retry_topic, then a final rule."""

    def __str__(self) -> str:
        return f"{self.name}({', '.join(error.__name__ for error in self.errors)})"

    def matches(self, error: type[Exception]) -> bool:
        """Return whether the rule is for errors of this class."""
        if self.errors:
            return issubclass(error, self.errors)
        return self.rank == 2 or not is_permanent(error)

    def action(self, record: Record[Any, Any], attempt: int) -> Action | None:
        """Return what to do after ``attempt`` failed attempts; None if the next matching rule decides."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _Retry(Rule):
    attempts: int
    pauses: Backoff = field(compare=False)
    name = "retry"
    rank = 0

    def action(self, record: Record[Any, Any], attempt: int) -> Action | None:
        return Again(self.pauses.after(attempt - 1)) if attempt < self.attempts else None


@dataclass(frozen=True, slots=True)
class _RetryTopic(Rule):
    topics: Mapping[str, float]
    name = "retry_topic"
    rank = 1

    def action(self, record: Record[Any, Any], attempt: int) -> Action | None:
        topics = list(self.topics)
        following = topics.index(record.topic) + 1 if record.topic in self.topics else 0
        return SendTo(topics[following], is_dead=False) if following < len(topics) else None


@dataclass(frozen=True, slots=True)
class _DeadLetter(Rule):
    topic: str
    name = "dead_letter"

    def action(self, record: Record[Any, Any], attempt: int) -> Action | None:
        return SendTo(self.topic, is_dead=True)


@dataclass(frozen=True, slots=True)
class _Skip(Rule):
    name = "skip"

    def action(self, record: Record[Any, Any], attempt: int) -> Action | None:
        return Finish()


@dataclass(frozen=True, slots=True)
class _Stop(Rule):
    name = "stop"

    def action(self, record: Record[Any, Any], attempt: int) -> Action | None:
        return Stop()


def retry(*errors: type[Exception], attempts: int = 3, backoff: float = 0.1, max_backoff: float = 10.0) -> Rule:
    """Make a rule: process the record again, up to ``attempts`` attempts in all. Other keys continue meanwhile.

    The pause before the second attempt is ``backoff`` seconds. It doubles each time up to ``max_backoff``, less a
    random part of up to 20%. ``errors`` are exception classes. Without them, the rule is for every error that another
    attempt may cure: all except TypeError, ValueError, SerializationError (with DeserializationError) and classes named
    ``ValidationError``. Raises ConfigurationError, TypeError or ValueError for a wrong argument.
    """
    for name, value in (("backoff", backoff), ("max_backoff", max_backoff)):
        check_seconds(name, value)
    return _Retry(checked_errors("retry", errors), whole("attempts", attempts, 1), Backoff(backoff, max_backoff))


def retry_topic(*errors: type[Exception], topics: Mapping[str, float]) -> Rule:
    """Make a rule: send the record to the next of these topics, and process it again there.

    ``topics`` maps the names of the topics to the seconds for which their records wait. A record goes through them in
    their order. It does not go back to those of an earlier rule for the same error. The group must read the topics, and
    each group needs its own. Later records of the key do not wait.
    ``errors`` are as for ``retry``. Raises ConfigurationError for a wrong argument.
    """
    checked = checked_errors("retry_topic", errors)
    if not isinstance(topics, Mapping) or not topics:
        raise ConfigurationError(must_be("topics", "a mapping of topics to seconds", topics))
    for topic, delay in topics.items():
        _check_topic("topics", topic)
        check_seconds(f"topics[{topic!r}]", delay)
    return _RetryTopic(checked, dict(topics))


def dead_letter(*errors: type[Exception], topic: str) -> Rule:
    """Make a rule: send the record to this topic, and finish it. The group must not read the topic.

    ``errors`` are exception classes. Without them, the rule is for every exception, as in the following two functions.
    Raises ConfigurationError for a wrong argument.
    """
    _check_topic("topic", topic)
    return _DeadLetter(checked_errors("dead_letter", errors), topic)


def skip(*errors: type[Exception]) -> Rule:
    """Make a rule: log the error, and finish the record. Raises ConfigurationError for a wrong argument."""
    return _Skip(checked_errors("skip", errors))


def stop(*errors: type[Exception]) -> Rule:
    """Make a rule: end ``consume`` with the error. Raises ConfigurationError for a wrong argument."""
    return _Stop(checked_errors("stop", errors))


Decide = Callable[[Exception, Record[Any, Any], int], Rule | Awaitable[Rule | None] | None]
"""A function in the place of a rule. It gets the error, the record and the number of its failed attempts. It returns a
rule, whose classes of errors do not matter; or None, and the next rule decides. It may be async."""


class Rules:
    """The checked rules of one ``Workers``. Raises ConfigurationError for wrong and for conflicting rules.

    Two rules conflict if the first one leaves nothing to the second one: the same kind of rule twice for an error, or
    any rule behind a final one, or ``retry`` behind ``retry_topic``.
    """

    def __init__(self, rules: Sequence[Rule | Decide]) -> None:
        if not isinstance(rules, list | tuple):
            raise ConfigurationError(must_be("rules", "a list of rules, such as [retry(), skip(KeyError)]", rules))
        self._rules = tuple(rules)
        before: list[Rule] = []
        for number, rule in enumerate(self._rules, 1):
            if isinstance(rule, Rule):
                _check_conflict(rule, before)
                before.append(rule)
            elif isinstance(rule, type) or not callable(rule) or getattr(rule, "__module__", None) == __name__:
                what = "retry(...), retry_topic(...), dead_letter(...), skip(...), stop(...) or a function"
                raise ConfigurationError(must_be(f"rule {number}", what, rule))
        self.delays: dict[str, float] = {}
        """The retry topics, and the seconds for which their records wait."""
        for rule in before:
            if isinstance(rule, _RetryTopic):
                for topic, delay in rule.topics.items():
                    if self.delays.setdefault(topic, delay) != delay:
                        raise ConfigurationError(f"two rules have different delays for the retry topic {topic!r}")
        self._dead_letter_topics = {rule.topic for rule in before if isinstance(rule, _DeadLetter)}
        if both := sorted(self._dead_letter_topics & self.delays.keys()):
            raise ConfigurationError(f"{both[0]!r} cannot be both a retry topic and a dead-letter topic")

    @property
    def needs_producer(self) -> bool:
        """Whether any rule sends records to other topics, as far as is known before a function decides."""
        return bool(self.delays or self._dead_letter_topics)

    async def decide(self, error: Exception, record: Record[Any, Any], attempt: int) -> Action:
        """Return what to do with a record after ``attempt`` failed attempts. Raises the exceptions of functions.

        Raises TypeError or ConfigurationError if a function returns something wrong.
        """
        for number, rule in enumerate(self._rules):
            chosen: Rule | None
            if isinstance(rule, Rule):
                chosen = rule if rule.matches(type(error)) and not self._is_behind(number, error, record) else None
            else:
                chosen = await self._call(rule, error, record, attempt)
            action = None if chosen is None else chosen.action(record, attempt)
            if action is not None:
                return action
        return Stop()

    def _is_behind(self, number: int, error: Exception, record: Record[Any, Any]) -> bool:
        """Return whether the rule is a ``retry_topic`` that the record has passed on its way to a later one.

        Otherwise a record that fails in a topic of the later rule would begin again with those of the earlier one.
        """
        rule = self._rules[number]
        return (
            isinstance(rule, _RetryTopic)
            and record.topic not in rule.topics
            and any(
                isinstance(later, _RetryTopic) and record.topic in later.topics and later.matches(type(error))
                for later in self._rules[number + 1 :]
            )
        )

    async def _call(self, decide: Decide, error: Exception, record: Record[Any, Any], attempt: int) -> Rule | None:
        result = decide(error, record, attempt)
        if inspect.isawaitable(result):
            chosen: list[Rule | None] = []

            async def choose() -> None:
                chosen.append(await result)

            await wait("a rule", choose())
            rule = chosen[0]
        else:
            rule = result
        name = getattr(decide, "__qualname__", decide)
        if rule is not None and not isinstance(rule, Rule):
            raise TypeError(f"the rule {name} must return a rule or None, but it returned {shown(rule)}")
        if isinstance(rule, _RetryTopic) and not rule.topics.keys() <= self.delays.keys():
            missing = ", ".join(sorted(rule.topics.keys() - self.delays.keys()))
            raise ConfigurationError(
                f"the rule {name} returned the retry topics {missing}, which no rule in the list names; add the "
                f"retry_topic() to the list, behind the function"
            )
        return rule


def _check_conflict(rule: Rule, before: Sequence[Rule]) -> None:
    for earlier in before:
        if earlier.rank < rule.rank:
            continue
        for error in rule.errors:
            if earlier.matches(error):
                raise ConfigurationError(
                    f"{rule} does nothing for {error.__name__}, because {earlier} comes before it; put the rule for "
                    f"the smaller class first, retry before retry_topic, and both before the others"
                )
        # Without classes, the rule is for every error, or for every error that is not permanent.
        if not rule.errors and (not earlier.errors or Exception in earlier.errors):
            raise ConfigurationError(f"{rule} does nothing, because {earlier} comes before it")


def checked_errors(name: str, errors: tuple[object, ...]) -> tuple[type[Exception], ...]:
    """Return the classes. Raises ConfigurationError for anything else; ``name`` is the function that got them."""
    checked = []
    for error in errors:
        if not isinstance(error, type) or not issubclass(error, Exception):
            raise ConfigurationError(must_be(f"the errors of {name}()", "subclasses of Exception", error))
        checked.append(error)
    return tuple(checked)


def _check_topic(name: str, topic: str) -> None:
    if (problem := problem_of_topic_name(topic)) is not None:
        raise ConfigurationError(f"{name}: {problem}")
