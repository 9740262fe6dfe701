"""The comparisons of ``make bench``: each cell is one kind of work, and its candidates are clients that do it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from aiokafka_lite.compiled import COMPILED
from benchmarks.peers import CONNECTOR, GO, JAVA, PYTHON, SPARK

PARTITIONS = 4

OURS = "aiokafka_lite"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A client in one of its forms. ``label`` names it in tables; ``client`` is its function in ``program``."""

    label: str
    client: str
    plain: bool = False
    uvloop: bool = False
    program: str = PYTHON


@dataclass(slots=True)
class Cell:
    """One comparison. All candidates are compared with the first one."""

    title: str
    kind: str
    candidates: list[Candidate]
    count: int
    size: int
    keyed: bool = False
    compression: str = "none"
    senders: int = 0
    records: int = 0
    unit: str = "record"
    partitions: int = PARTITIONS
    is_filled: bool = False
    """Whether the topic has the records before the candidates run."""
    most_rounds: int = 100
    warms_up: bool = True
    """Whether the first candidate runs once before all, for the broker."""
    results: dict[str, list[dict[str, float] | None]] = field(default_factory=dict)
    """A result for each round; None for a candidate that failed."""
    problems: dict[str, str] = field(default_factory=dict)


def ours(label: str, client: str, *, plain: bool = False, uvloop: bool = False) -> list[Candidate]:
    """Return the candidate as built. With ``plain`` also as plain Python, if the two differ."""
    name = f"{OURS} {label}".strip()
    candidates = [Candidate(name, client)]
    if plain and COMPILED:
        candidates.append(Candidate(f"{name}, plain Python", client, plain=True))
    if uvloop:
        candidates.append(Candidate(f"{name}, uvloop", client, uvloop=True))
    return candidates


SIZES = (("1 kB", 1_000, 60_000), ("10 kB", 10_000, 10_000), ("1 MB", 1_000_000, 100))
"""Names of sizes, bytes of a value, and records."""

CODECS = ("none", "lz4", "zstd")
CONFLUENT = Candidate("confluent-kafka, delivery callback", "confluent callback")
AIOKAFKA = Candidate("aiokafka", "aiokafka")


def others(client: str, go: str, java: str) -> list[Candidate]:
    """Return the candidates of other languages. ``go`` and ``java`` say how they do the work."""
    return [
        Candidate(f"franz-go {go}".strip(), client, program=GO),
        Candidate(f"Java {java}".strip(), client, program=JAVA),
    ]


def produce_cells() -> Iterator[Cell]:
    for keyed in (False, True):
        yield Cell(
            f"produce 100 B{' with keys' if keyed else ''}, each record acknowledged",
            "produce",
            [
                *ours("send_nowait, deliveries awaited", "deliveries", plain=True, uvloop=not keyed),
                CONFLUENT,
                AIOKAFKA,
                Candidate("confluent-kafka AIOProducer", "AIOProducer"),
                *others("produce", "Produce, a promise each", "send, a callback each"),
            ],
            150_000,
            100,
            keyed=keyed,
        )
    yield Cell(
        "produce 100 B in bulk",
        "produce",
        [
            *ours("send_many", "send_many"),
            *ours("send_nowait, flush", "send_nowait"),
            *ours("send_arrow", "send_arrow"),
            Candidate("confluent-kafka, no callback", "confluent no callback"),
            Candidate("confluent-kafka produce_batch", "confluent produce_batch"),
            *others("produce", "Produce, a promise each", "send, a callback each"),
        ],
        150_000,
        100,
    )
    for (name, size, count), codec in [*product(SIZES, CODECS), (SIZES[-1], "gzip")]:
        candidates = [*ours("send_nowait, deliveries awaited", "deliveries"), CONFLUENT, AIOKAFKA]
        yield Cell(f"produce {name}, {codec}", "produce", candidates, count, size, compression=codec)


def consume_cells() -> Iterator[Cell]:
    yield Cell(
        "consume 100 B",
        "consume",
        [
            *ours("async for", "async for", plain=True),
            *ours("poll(500)", "poll"),
            *ours("poll(5000)", "poll 5000"),
            *ours("batches(5000), all values", "batches", plain=True),
            *ours("batches(50000).to_arrow()", "to_arrow", plain=True),
            Candidate("confluent-kafka consume(5000)", "confluent consume"),
            Candidate("confluent-kafka poll", "confluent poll"),
            Candidate("aiokafka getmany", "aiokafka getmany"),
            Candidate("aiokafka async for", "aiokafka async for"),
            *others("consume", "PollFetches, EachRecord", "poll"),
        ],
        1_000_000,
        100,
        is_filled=True,
    )
    for (name, size, count), codec in product(SIZES, CODECS):
        candidates = [
            *ours("batches(5000), all values", "batches"),
            Candidate("confluent-kafka consume(5000)", "confluent consume"),
            Candidate("aiokafka getmany", "aiokafka getmany"),
        ]
        yield Cell(f"consume {name}, {codec}", "consume", candidates, count, size, compression=codec, is_filled=True)


def sender_cells() -> Iterator[Cell]:
    for senders, count in ((1, 1_000), (10, 5_000), (100, 15_000), (1000, 30_000)):
        yield Cell(
            f"awaited sends by {senders:,} task{'s' * (senders > 1)}, 100 B",
            "senders",
            [
                *ours("", "send", plain=True, uvloop=True),
                Candidate("confluent-kafka, a thread polls", "confluent senders"),
                Candidate("confluent-kafka AIOProducer", "AIOProducer senders"),
                Candidate("aiokafka", "aiokafka senders"),
                *others("senders", "ProduceSync", "send().get()"),
            ],
            count,
            100,
            senders=senders,
            unit="send",
        )


def peers(kind: str, go: str = "", java: str = "", *, plain: bool = False) -> list[Candidate]:
    """Return our client, the other clients of Python, and those of other languages."""
    return [
        *ours("", f"{kind}: ours", plain=plain),
        Candidate("confluent-kafka", f"{kind}: confluent-kafka"),
        Candidate("aiokafka", f"{kind}: aiokafka"),
        *others(kind, go, java),
    ]


def transaction_cells() -> Iterator[Cell]:
    for records, count in ((1, 300), (100, 100), (10_000, 15)):
        candidates = peers("transactions", plain=True)
        candidates[1:1] = ours("send_many", "transactions: ours, send_many") if records > 1 else []
        title = f"transactions of {records:,} record{'s' * (records > 1)}, 100 B"
        yield Cell(title, "times", candidates, count, 100, records=records, unit="transaction")


def web_cells() -> Iterator[Cell]:
    for connections, count in ((1, 2_000), (64, 20_000), (256, 20_000), (1_000, 20_000)):
        yield Cell(
            f"a web service under {connections:,} connection{'s' * (connections > 1)}",
            "web",
            [
                Candidate("a bare future", "web: bare future", uvloop=True),
                Candidate(OURS, "web: ours", uvloop=True),
                Candidate("aiokafka", "web: aiokafka", uvloop=True),
            ],
            count,
            100,
            senders=connections,
            unit="request",
        )


def lifetime_cells() -> Iterator[Cell]:
    for members, count in ((1, 20), (50, 2)):
        title = f"{members} member{'s' * (members > 1)} join{'s' * (members == 1)} a group"
        partitions = max(members, PARTITIONS)
        yield Cell(title, "times", peers("join"), count, 100, senders=members, partitions=partitions, unit="group")
    yield Cell("a producer that does nothing", "idle", peers("idle"), 30, 100, senders=1, unit="client", warms_up=False)
    yield Cell("from start to first record", "start", peers("start", plain=True), 1, 100, senders=1, unit="process")


def spark_cells() -> Iterator[Cell]:
    def cell(title: str, kind: str, work: str, count: int, **fields: Any) -> Cell:
        candidates = [
            Candidate(f"{OURS}, format kafka-lite", f"{work}: ours", program=SPARK),
            Candidate("Spark's connector", f"{work}: connector", program=CONNECTOR),
            Candidate("Spark's connector, tuned", f"{work}: tuned", program=CONNECTOR),
        ]
        return Cell(title, kind, candidates, count, 100, keyed=True, most_rounds=3, warms_up=False, **fields)

    yield cell("Spark reads 100 B, to nowhere", "spark rows", "read", 2_000_000, is_filled=True, unit="row")
    yield cell("Spark writes 100 B", "spark rows", "write", 1_000_000, unit="row")
    yield cell(
        "Spark reads a stream of 100 B with availableNow", "spark rows", "stream", 2_000_000, is_filled=True, unit="row"
    )
    yield cell(
        "Spark's micro-batches of 40 rows", "spark batches", "batches", 1_600, is_filled=True, partitions=1, unit="row"
    )
    yield cell(
        "Spark plans a query of 1,000 empty partitions", "spark plans", "plan", 5, partitions=1_000, unit="query"
    )


def all_cells() -> list[Cell]:
    return [
        *produce_cells(),
        *consume_cells(),
        *sender_cells(),
        *transaction_cells(),
        *web_cells(),
        *lifetime_cells(),
        *spark_cells(),
    ]
