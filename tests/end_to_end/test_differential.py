"""The same requests to the embedded broker and to Apache Kafka 4.3.1 get the same responses, field by field.

Sequences of requests are random, made from a seed, valid and invalid, in every version that both brokers support. The
environment variable DIFFERENTIAL_SEEDS sets the number of seeds, or a range: ``DIFFERENTIAL_SEEDS=2000 pytest
tests/end_to_end/test_differential.py``, or ``DIFFERENTIAL_SEEDS=1234:1235``. A failure names its seed and its step.
The random test of members runs only if the variable is set. EXCEPTIONS lists the differences that have a reason.
Requests that cannot be compared are named in differential/, at the functions that leave them out, with the reason.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol import messages as m
from tests.case_notes import seeds
from tests.end_to_end.conftest import missing
from tests.end_to_end.differential.compared_brokers import Side
from tests.end_to_end.differential.scenario import common_versions
from tests.end_to_end.differential.scenario_run import (
    Excuse,
    clean_up,
    cluster_like_the_container,
    disagreements,
    until_ready,
)
from tests.end_to_end.differential.scenario_themes import members_scenario, scenario_of
from tests.real.kafka_servers import Servers, Unavailable
from tests.real.releases import NEWEST, wanted

EXCEPTIONS = (
    Excuse(
        r".*\.error_message",
        "the embedded broker explains more",
        lambda embedded, real, version: embedded == "a text" and not real,
    ),
    Excuse(
        r".*\.error_message",
        "an empty message or none where there is no error",
        lambda embedded, real, version: not embedded and not real,
    ),
    Excuse(
        r"FindCoordinator\.error_message",
        "without an error, Kafka's message is the word NONE",
        lambda embedded, real, version: embedded is None and 1 <= version <= 3,
    ),
    Excuse(
        r".*\.error_code",
        "Kafka fails with an unexpected exception; the embedded broker names the error",
        lambda embedded, real, version: real == ErrorCode.UNKNOWN_SERVER_ERROR and embedded != ErrorCode.NONE,
    ),
    Excuse(
        r"Produce\..*\.log_start_offset",
        "with some errors Kafka returns the log start offset, the embedded broker does not",
        lambda embedded, real, version: embedded == -1,
    ),
    Excuse(
        r"Produce\..*\.error_code",
        "with invalid acks, any other reason to refuse a batch is as good",
        lambda embedded, real, version: embedded and real and ErrorCode.INVALID_REQUIRED_ACKS in (embedded, real),
    ),
    Excuse(
        r"Produce\..*\.error_code",
        "a batch with two errors: an invalid header, and a compression that the version lacks",
        lambda embedded, real, version: (
            embedded in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
            and real == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        ),
    ),
    Excuse(
        r"Fetch\..*\.attributes",
        "the embedded broker keeps reserved attribute bits; Kafka drops them where it writes a new header",
        lambda embedded, real, version: embedded & 0xFF == real & 0xFF,
    ),
    Excuse(
        r"Fetch\..*\.aborted_transactions",
        "an empty list of aborted transactions or none, where there are no records either",
        lambda embedded, real, version: not embedded and not real,
    ),
    Excuse(
        r"Metadata\.topics\[\]\.(error_code|partitions|topic_id)",
        "a topic that the request creates is in the response at once; in Kafka it is in the next response",
        lambda embedded, real, version: real in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [], "zero"),
    ),
    Excuse(
        r"ApiVersions\.(supported_features|finalized_features|finalized_features_epoch)",
        "the embedded broker leaves out the features that change nothing here",
    ),
    Excuse(
        r"DescribeTopicPartitions\..*\.topic_authorized_operations",
        "Kafka returns no authorized operations for any topic if one of the names is empty",
        lambda embedded, real, version: real == -(2**31),
    ),
    Excuse(
        r"DescribeLogDirs\.results\[\]\.(total_bytes|usable_bytes)",
        "an embedded broker has no volume, and so no total size",
        lambda embedded, real, version: embedded == -1,
    ),
    Excuse(
        r"DescribeLogDirs\..*\.partition_size",
        "two libraries compress the same records to different sizes",
        lambda embedded, real, version: 0.9 < embedded / max(real, 1) < 1.1,
    ),
    Excuse(
        r"ListOffsets\..*\.(timestamp|offset|leader_epoch)",
        "after the deletion of all records, Kafka still finds the one with the highest timestamp for a while",
        lambda embedded, real, version: version >= 7 and embedded == -1,
        lambda request: any(part.timestamp == -3 for topic in request.topics for part in topic.partitions),
    ),
    Excuse(
        r"StreamsGroup(Heartbeat|Describe)\..*active_tasks\[\]\.partitions\[\]",
        "the assignor of streams groups may move other tasks: their numbers are not compared",
    ),
    Excuse(
        r"DescribeQuorum\..*\.(high_watermark|log_end_offset)",
        "the number of decisions of two controllers",
        lambda embedded, real, version: embedded > 0 and real > 0,
    ),
)

SEEDS = 100
USUAL = 25
"""The seeds from this one on are long: they run in ``make test-long``."""
RUN = secrets.token_hex(3)
"""A part of all names, so that a broker can be used for several runs."""


def chosen_seeds() -> list[Any]:
    """Return the seeds that DIFFERENTIAL_SEEDS asks for, which may be a bound or a range, such as ``100:200``."""
    if (seeds_text := os.environ.get("DIFFERENTIAL_SEEDS")) is None:
        return seeds(SEEDS, usual=USUAL)
    first, _, last = seeds_text.rpartition(":")
    return list(range(int(first or 0), int(last)))


@pytest.fixture(scope="session")
def newest(request: pytest.FixtureRequest, servers: Servers) -> str:
    """The bootstrap servers of Apache Kafka in the release that is compared."""
    asked_for = wanted(request.config.getoption("--kafka"))
    name = next((kafka_name for kafka_name in ("given", NEWEST) if kafka_name in asked_for), None)
    if name is None:
        pytest.skip(f"Kafka {NEWEST} is not selected")
    try:
        server, _ = servers.get(name)
    except Unavailable as problem:
        missing(f"Kafka {NEWEST}: {problem}")
    return server.bootstrap_servers


@pytest.fixture
async def real(newest: str) -> AsyncIterator[Side]:
    async with Side("real", newest) as side:
        await until_ready(side)
        yield side


@pytest.fixture
async def embedded() -> AsyncIterator[Side]:
    async with cluster_like_the_container() as cluster, Side("embedded", cluster.bootstrap_servers) as side:
        await until_ready(side)
        yield side


@pytest.mark.real
@pytest.mark.parametrize("seed", chosen_seeds())
async def test_the_embedded_broker_answers_as_kafka_does(embedded: Side, real: Side, seed: int) -> None:
    scenario = scenario_of(seed, f"d{RUN}-{seed}-")
    try:
        async for disagreement in disagreements(scenario, embedded, real, EXCEPTIONS):
            pytest.fail(str(disagreement))
    finally:
        await clean_up(scenario, real)


@pytest.mark.real
@pytest.mark.skipif(
    "DIFFERENTIAL_SEEDS" not in os.environ, reason="differences remain (docs/project-tests.md); set DIFFERENTIAL_SEEDS"
)
@pytest.mark.parametrize("seed", chosen_seeds() if "DIFFERENTIAL_SEEDS" in os.environ else [0])
async def test_members_are_answered_as_kafka_does(embedded: Side, real: Side, seed: int) -> None:
    scenario = members_scenario(seed, f"m{RUN}-{seed}-")
    try:
        async for disagreement in disagreements(scenario, embedded, real, EXCEPTIONS):
            pytest.fail(str(disagreement))
    finally:
        await clean_up(scenario, real)


COMPARED_ELSEWHERE = (
    *(m.ConsumerGroupHeartbeatRequest, m.ConsumerGroupDescribeRequest, m.ShareGroupHeartbeatRequest),
    *(m.ShareGroupDescribeRequest, m.ShareFetchRequest, m.ShareAcknowledgeRequest),
    *(m.DescribeShareGroupOffsetsRequest, m.AlterShareGroupOffsetsRequest, m.DeleteShareGroupOffsetsRequest),
    *(m.StreamsGroupHeartbeatRequest, m.StreamsGroupDescribeRequest),
    *(m.InitializeShareGroupStateRequest, m.ReadShareGroupStateRequest, m.ReadShareGroupStateSummaryRequest),
    *(m.WriteShareGroupStateRequest, m.DeleteShareGroupStateRequest),
)
"""Requests of members that the broker assigns partitions to. ``test_members_are_answered_as_kafka_does`` has those of
consumer and streams groups, if DIFFERENTIAL_SEEDS is set; ``test_share_group_requests`` has those of share groups."""


def test_the_scenarios_use_every_version_that_both_brokers_support() -> None:
    steps = itertools.chain.from_iterable(scenario_of(seed, "p-").steps for seed in range(SEEDS))
    sent = {(step.kind.api_key, step.version) for step in steps}
    elsewhere = {request.api_key for request in COMPARED_ELSEWHERE}
    spoken = {(key, version) for key, versions in common_versions().items() for version in versions}
    assert {(key, version) for key, version in spoken if key not in elsewhere} == sent
