"""A scenario: a random sequence of requests, made before anything is sent.

A step has a fixed version. Names that only a broker knows (a topic's id, a member's id) are looked up when it is sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from aiokafka_lite.embedded.handlers import default_versions
from aiokafka_lite.embedded.settings.versions import KAFKA_RELEASES
from aiokafka_lite.protocol.schema import Request
from tests.end_to_end.differential.compared_brokers import Make, Side

RELEASE = "4.3.1"
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32

NOT_COMPARED = (17, 36, 71, 72)
"""The APIs of logins, which a side uses to connect, and of client metrics, which need a receiver."""


def common_versions() -> dict[int, range]:
    """Return the versions by API key that both brokers speak, without the APIs of ``NOT_COMPARED``."""
    real = KAFKA_RELEASES[RELEASE]
    embedded = {key: versions for key, versions in default_versions().items() if key not in NOT_COMPARED}
    return {
        key: range(max(embedded[key][0], real[key][0]), min(embedded[key][1], real[key][1]) + 1)
        for key in sorted(embedded.keys() & real.keys())
    }


@dataclass(frozen=True, slots=True)
class Step:
    """A request for both brokers. ``changes`` names the topics whose state it may change.

    ``before`` runs for each side before the request is made, and ``after`` after its answer.
    """

    kind: type[Request[Any]]
    version: int
    make: Make = field(repr=False)
    changes: tuple[str, ...] = ()
    only_of_scenario: bool = False
    """Whether the response contains everything on the broker, so that only this scenario's part is compared."""
    note: str = ""
    before: Callable[[Side], Awaitable[None]] | None = None
    after: Callable[[Side, Any, Any], None] | None = None


class Scenario:
    """The steps of one seed. ``prefix`` makes names that no other scenario uses.

    ``first_use`` chooses the version of each API's first step.
    """

    def __init__(self, seed: int, prefix: str, first_use: int) -> None:
        self.seed = seed
        self.prefix = prefix
        self.random = Random(seed)
        self.steps: list[Step] = []
        self.partitions: dict[str, int] = {}
        self.sequences: dict[tuple[str, int, int], tuple[int, int]] = {}
        self.versions = common_versions()
        self._first_use = first_use
        self._uses: dict[type[Request[Any]], int] = {}

    def add(self, kind: type[Request[Any]], make: Callable[[Side, int], Any], **fields: Any) -> None:
        """Append a step in the API's next version, so that a few uses and a few seeds cover all versions."""
        versions = self.versions[kind.api_key]
        use = self._uses[kind] = self._uses.get(kind, self._first_use) + 1
        version = versions[use % len(versions)]
        self.steps.append(Step(kind, version, lambda side: make(side, version), **fields))

    # ---- names

    def topic(self) -> str:
        """Choose a topic, mostly one that exists."""
        if self.partitions and self.random.random() < 0.85:
            return self.random.choice(list(self.partitions))
        return self.random.choice([f"{self.prefix}nowhere", f"{self.prefix}not legal", f"{self.prefix}deleted"])

    def partition(self, topic: str) -> int:
        count = self.partitions.get(topic, 1)
        indexes: list[int] = [*range(count), *range(count), *range(count), count, -1, 1000]
        return self.random.choice(indexes)

    def some_partitions(self, topic: str, most: int) -> list[int]:
        return sorted({self.partition(topic) for _ in range(self.several(most))})

    def several(self, most: int) -> int:
        return self.random.randint(1, most)


def named(side: Side, name: str, by_id: bool) -> dict[str, Any]:
    return {"topic_id": side.topic_id(name)} if by_id else {"name": name}
