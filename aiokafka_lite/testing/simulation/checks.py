"""Ready-made checks: what must hold at the end of each simulation of a service.

A check is a function of the history that returns what is broken: a sentence, a ``Broken`` with the id of the record
concerned, or None. An attribute ``pending``, a function of the history, says whether the simulation has to wait longer.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from .history import History, Written

MAY_REPEAT = "(if the service may process a record twice, call simulate with checks=at_least_once())"
_VARIES = re.compile(r"'[^']*'|\"[^\"]*\"| \(start \d+\)|0x[0-9a-f]+|\d+(\.\d+)?")
"""The parts of a sentence that name one record, process, partition, offset, time or count."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A broken check in one sentence, the id of the record concerned, whose timeline is shown, and what may help."""

    text: str
    id: str = ""
    hint: str = ""

    @property
    def symptom(self) -> str:
        """The sentence without names in quotes and numbers: the same for other records, processes and times."""
        return _VARIES.sub("", self.text)


Check: TypeAlias = Callable[[History], str | Broken | None]


@dataclass(frozen=True, slots=True)
class processed_at_least_once:  # noqa: N801 - it reads as a function, as the other checks
    """Every record of the workload has an effect, or an output record that mentions its id.

    ``topic`` and ``effect`` select the records and the name of the effect; None is any.
    """

    topic: str | None = None
    effect: str | None = None

    def pending(self, history: History) -> bool:
        """Return whether a record is not processed yet."""
        return self._missing(history) is not None

    def _missing(self, history: History) -> Written | None:
        done = {effect.id for effect in history.effects if effect.outcome.is_applied and self._selects(effect.name)}
        if self.effect is None:
            done.update(history.outputs_that_mention())
        for identity, written in history.written.items():
            if identity not in done and self.topic in (None, written.message.topic):
                return written
        return None

    def _selects(self, name: str) -> bool:
        return self.effect in (None, name)

    def __call__(self, history: History) -> Broken | None:
        """Return the first record that was never processed."""
        missing = self._missing(history)
        if missing is None:
            return None
        identity = missing.message.identity
        what = f"has no effect {self.effect!r}" if self.effect else "has no effect and no output record"
        text = f"{identity!r} was written to {missing.message.topic} but {what}"
        for effect in history.effects:
            if effect.id == identity and effect.key_used_by and self._selects(effect.name):
                key = f"the idempotence key {effect.idempotence_key!r}"
                text += f": {effect.name!r} was ignored, because {effect.key_used_by!r} had used {key}"
                break
        return Broken(text, identity)


def processed_at_most_once(effect: str | None = None) -> Check:
    """Check that no effect of a record happened twice. Effects with the same idempotence key count once."""

    def at_most_once(history: History) -> Broken | None:
        counts = Counter((applied.name, applied.id) for applied in history.applied(effect))
        for (name, identity), count in counts.items():
            if count > 1:
                return Broken(f"the effect {name!r} of {identity!r} happened {count} times", identity, MAY_REPEAT)
        return None

    return at_most_once


def outputs_once(topic: str | None = None) -> Check:
    """Check that no output topic has two records with the same key and value."""

    def once(history: History) -> Broken | None:
        for name, records in history.outputs.items():
            if topic not in (None, name):
                continue
            counts = Counter((record.key, record.value) for record in records)
            for record in records:
                if counts[record.key, record.value] > 1:
                    mentioned = history.mentioned(record)
                    about = repr(mentioned[0]) if mentioned else repr(record.value)
                    count = counts[record.key, record.value]
                    text = f"{name} has {count} equal records about {about}"
                    return Broken(text, mentioned[0] if mentioned else "", MAY_REPEAT)
        return None

    return once


def in_order_by_key(effect: str | None = None) -> Check:
    """Check that the first effects of the records of a key happened in the order of the records.

    Without a name, the same must hold for the first records of each key in a partition of an output topic. Records of
    different partitions have no order. A record without a key is not checked, nor is an output with several ids.
    """

    def in_order(history: History) -> Broken | None:
        latest: dict[tuple[str, str, int, str], Written] = {}
        done: set[tuple[str, str]] = set()
        for applied in history.applied(effect):
            written = history.written.get(applied.id)
            if written is None or written.message.key is None or (applied.name, applied.id) in done:
                continue
            done.add((applied.name, applied.id))
            key = (applied.name, written.message.topic, written.partition, written.message.key)
            before = latest.setdefault(key, written)
            if written.offset < before.offset:
                later = before.message.identity
                return Broken(
                    f"the effect {applied.name!r} of {applied.id!r} came after that of {later!r}, which is a later "
                    f"record of the key {written.message.key!r}",
                    applied.id,
                )
            latest[key] = written
        return _outputs_in_order(history) if effect is None else None

    return in_order


def _outputs_in_order(history: History) -> Broken | None:
    latest: dict[tuple[object, ...], Written] = {}
    done: set[tuple[str, str]] = set()
    for name, records in history.outputs.items():
        for record in records:
            mentioned = history.mentioned(record)
            if record.key is None or len(mentioned) != 1 or (name, mentioned[0]) in done:
                continue
            done.add((name, mentioned[0]))
            written = history.written[mentioned[0]]
            if written.message.key is None:
                continue
            place = written.message.topic, written.partition, written.message.key
            before = latest.setdefault((name, record.partition, record.key, *place), written)
            if written.offset < before.offset:
                return Broken(
                    f"the record of {mentioned[0]!r} in {name} came after that of {before.message.identity!r}, which "
                    f"is a later record of the key {written.message.key!r}",
                    mentioned[0],
                )
            latest[name, record.partition, record.key, *place] = written
    return None


def committed_after_effect(effect: str | None = None) -> Check:
    """Check that when an offset was committed, all records before it had an effect, an output or a row.

    A row is one that a transaction of the database has committed. An output counts when the broker has acknowledged it.
    An output of a transaction has no time here, so its record counts as processed.
    """

    def after_effect(history: History) -> Broken | None:
        done: dict[str, float] = {}
        outputs = history.outputs_that_mention() if effect is None else {}
        for applied in history.applied(effect):
            done.setdefault(applied.id, applied.at if applied.ended_at is None else applied.ended_at)
        for identity, records in outputs.items():
            times = [history.appended.get((topic, record.partition, record.offset), 0.0) for topic, record in records]
            done[identity] = min(*times, done.get(identity, times[0]))
        if effect is None:
            for change in history.rows:
                for identity in history.ids_in(str(change.key), str(change.row)):
                    done[identity] = min(change.at, done.get(identity, change.at))
        if not done:
            return None
        by_partition: defaultdict[tuple[str, int], list[Written]] = defaultdict(list)
        for written in history.written.values():
            by_partition[written.message.topic, written.partition].append(written)
        for commit in history.commits:
            if commit.refusal:
                continue
            for written in by_partition[commit.topic, commit.partition]:
                identity = written.message.identity
                if written.offset < commit.offset and done.get(identity, float("inf")) > commit.at:
                    what = f"the effect of {identity!r}"
                    if identity in outputs:
                        what = f"the record of {identity!r} in {outputs[identity][0][0]} was acknowledged"
                    return Broken(
                        f"{commit.process} committed {commit.topic}-{commit.partition} up to {commit.offset} at "
                        f"{commit.at:.3f} s, before {what}",
                        identity,
                    )
        return None

    return after_effect


def output_equals(output: str, function: Callable[[bytes], bytes], *, topic: str | None = None) -> Check:
    """Check that the values of an output topic are ``function`` of the values of the input, each once, in any order."""

    def equals(history: History) -> Broken | None:
        expected: dict[bytes, str] = {}
        for identity, written in history.written.items():
            if topic in (None, written.message.topic):
                expected[function(written.message.value.encode())] = identity
        counts = Counter(bytes(record.value or b"") for record in history.outputs.get(output, ()))
        for value, identity in expected.items():
            if counts[value] != 1:
                return Broken(f"{output} has {counts[value]} records for {identity!r}, expected 1", identity)
        for value in counts:
            if value not in expected:
                return Broken(f"{output} has the record {value!r}, which comes from no record of the input")
        return None

    return equals


def one_owner(effect: str | None = None) -> Check:
    """Check that no two processes had effects of the same partition at the same time."""

    def owned_once(history: History) -> Broken | None:
        latest: dict[tuple[str, int], tuple[float, str, str]] = {}
        for started in history.effects:
            written = history.written.get(started.id)
            if written is None or effect not in (None, started.name):
                continue
            place = written.message.topic, written.partition
            end, process, identity = latest.get(place, (0.0, "", ""))
            if started.at < end and process != started.process:
                return Broken(
                    f"{process} and {started.process} processed {place[0]}-{place[1]} at once: {identity!r} and "
                    f"{started.id!r}",
                    started.id,
                )
            ended = float("inf") if started.ended_at is None else started.ended_at
            latest[place] = max((end, process, identity), (ended, started.process, started.id))
        return None

    return owned_once


def stops_within(seconds: float = 30.0) -> Check:
    """Check that each process of the service ends within this time after SIGTERM."""

    def stops(history: History) -> str | None:
        for process, duration in history.stops:
            if duration is None or duration > seconds:
                return f"{process} did not end within {seconds:g} s after SIGTERM"
        return None

    return stops


def no_unhandled_exception() -> Check:
    """Check that nothing but a fault ended a process, and that no error reached the event loop's handler.

    A KafkaError or EffectFailed may come from a fault, so it ends a process rightly after the first fault of a run.
    """

    def unhandled(history: History) -> str | None:
        return history.errors[0] if history.errors else None

    return unhandled


def nothing_left_behind() -> Check:
    """Check that no task, no connection and no open transaction is left when a process has ended."""

    def left(history: History) -> str | None:
        return history.left_behind[0] if history.left_behind else None

    return left


def at_least_once() -> Sequence[Check]:
    """Return the checks of a service that may process a record again."""
    return (
        no_unhandled_exception(),
        processed_at_least_once(),
        committed_after_effect(),
        in_order_by_key(),
        stops_within(),
        nothing_left_behind(),
    )


def default_checks() -> Sequence[Check]:
    """Return the checks of ``simulate``: nothing is lost, doubled or reordered, and the service stops cleanly."""
    return (*at_least_once(), processed_at_most_once(), outputs_once())
