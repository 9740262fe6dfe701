"""The same requests to the embedded broker and to Apache Kafka 4.3.1, and the same answers, field by field.

Sequences are random, made from a seed, valid and invalid, in every version that both speak. The environment variable
DIFFERENTIAL_SEEDS says how many seeds to try, or which: `DIFFERENTIAL_SEEDS=2000 pytest
tests/end_to_end/test_differential.py`, or `DIFFERENTIAL_SEEDS=1234:1235`. A failure names its seed and its step. Where
the two differ for a reason, EXCEPTIONS says so. What cannot be sent at all is named in differential/batches.py and
differential/scenarios.py, with the reason.
"""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka_lite.errors import ErrorCode
from tests.end_to_end.conftest import missing
from tests.end_to_end.differential.running import (
    Excuse,
    clean_up,
    cluster_like_the_container,
    disagreements,
    until_ready,
)
from tests.end_to_end.differential.scenarios import Scenario, common_versions
from tests.end_to_end.differential.sides import Side
from tests.real.releases import NEWEST, wanted
from tests.real.servers import Servers, Unavailable


def _is_about_min_isr(embedded: Any, real: Any) -> bool:
    """Whether what is one more in a list of synonyms is that setting of the cluster's."""
    more = [each for each in real if each not in embedded] if isinstance(real, list) else []
    names = {(each["name"], each.get("source", each.get("config_source"))) for each in more}
    return names == {("min.insync.replicas", 3)}


EXCEPTIONS = (
    Excuse(
        r".*\.error_message",
        "the embedded broker explains more",
        lambda embedded, real, version: embedded == "a text" and not real,
    ),
    Excuse(
        r".*\.error_message",
        "an empty text or none where there is nothing to say",
        lambda embedded, real, version: not embedded and not real,
    ),
    Excuse(
        r"FindCoordinator\.error_message",
        "the text of no error is the word NONE in Kafka's answer",
        lambda embedded, real, version: embedded is None and 1 <= version <= 3,
    ),
    Excuse(
        r".*\.error_code",
        "Kafka has tripped over the request and says no more; the embedded broker says what is wrong with it",
        lambda embedded, real, version: real == ErrorCode.UNKNOWN_SERVER_ERROR and embedded != ErrorCode.NONE,
    ),
    Excuse(
        r"Produce\..*\.log_start_offset",
        "beside some errors Kafka gives the log start offset, which is not selected",
        lambda embedded, real, version: embedded == -1,
    ),
    Excuse(
        r"Produce\..*\.error_code",
        "with acks that there are not, any other reason to refuse a batch is as good",
        lambda embedded, real, version: embedded and real and ErrorCode.INVALID_REQUIRED_ACKS in (embedded, real),
    ),
    Excuse(
        r"Produce\..*\.error_code",
        "a batch that is wrong in two ways: a header that cannot be, and a compression that the version lacks",
        lambda embedded, real, version: (embedded, real)
        == (ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ),
    Excuse(
        r"Fetch\..*\.attributes",
        "bits of the attributes that have no meaning yet are kept; Kafka drops them where it writes a new header",
        lambda embedded, real, version: embedded & 0xFF == real & 0xFF,
    ),
    Excuse(
        r"Fetch\..*\.aborted_transactions",
        "no aborted transactions, or none told of, where there are no records either",
        lambda embedded, real, version: not embedded and not real,
    ),
    Excuse(
        r"Metadata\.topics\[\]\.(error_code|partitions|topic_id)",
        "a topic that is made by being asked for is in the answer at once; Kafka shows it when asked again",
        lambda embedded, real, version: real in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [], "zero"),
    ),
    Excuse(
        r"ApiVersions\.(supported_features|finalized_features|finalized_features_epoch)",
        "the embedded broker has no features that are switched on for a cluster",
    ),
    Excuse(
        r"ApiVersions\.api_keys\[\]\.max_version",
        "InitProducerId in version 6 is kept back by Kafka until two-phase commit is allowed",
        lambda embedded, real, version: (embedded, real) == (6, 5),
    ),
    Excuse(
        r"DescribeTopicPartitions\..*\.topic_authorized_operations",
        "Kafka tells of no topic what may be done with it when one of the names is empty",
        lambda embedded, real, version: real == -(2**31),
    ),
    Excuse(
        r"DescribeLogDirs\.results\[\]\.(total_bytes|usable_bytes)",
        "memory has no size of its own",
        lambda embedded, real, version: embedded == -1,
    ),
    Excuse(
        r".*\.configs(\[\]\.(config_source|synonyms))?",
        "Kafka 4.1 and newer set min.insync.replicas for the whole cluster when its storage is formatted",
        lambda embedded, real, version: (real == 3 and embedded == 5) or _is_about_min_isr(embedded, real),
    ),
)

SEEDS = 75
RUN = secrets.token_hex(3)
"""In all names, so that a broker can be used again."""


def seeds() -> range:
    """The seeds that DIFFERENTIAL_SEEDS asks for."""
    first, _, last = os.environ.get("DIFFERENTIAL_SEEDS", str(SEEDS)).rpartition(":")
    return range(int(first or 0), int(last))


@pytest.fixture(scope="session")
def newest(request: pytest.FixtureRequest, servers: Servers) -> str:
    """The bootstrap servers of an Apache Kafka of the release to compare with."""
    asked_for = wanted(request.config.getoption("--kafka"))
    name = next((each for each in ("given", NEWEST) if each in asked_for), None)
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
@pytest.mark.parametrize("seed", seeds())
async def test_the_embedded_broker_answers_as_kafka_does(embedded: Side, real: Side, seed: int) -> None:
    scenario = Scenario(seed, f"d{RUN}-{seed}-")
    try:
        async for disagreement in disagreements(scenario, embedded, real, EXCEPTIONS):
            pytest.fail(str(disagreement))
    finally:
        await clean_up(scenario, real)


def test_every_version_that_both_speak_has_its_turn() -> None:
    steps = itertools.chain.from_iterable(Scenario(seed, "p-").steps for seed in range(SEEDS))
    sent = {(step.kind.api_key, step.version) for step in steps}
    spoken = {(key, version) for key, versions in common_versions().items() for version in versions}
    assert spoken == sent
