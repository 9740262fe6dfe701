"""Send a scenario to both brokers, until their responses differ."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol import messages as m
from aiokafka_lite.protocol.schema import Request
from tests.end_to_end.differential.compared_brokers import STRANGER, Difference, Outcome, Side, comparable, differences
from tests.end_to_end.differential.scenario import TOPIC, Scenario, Step, common_versions
from tests.waiting import DEADLINE

_CONFIG_CHANGES = (
    m.AlterConfigsRequest,
    m.IncrementalAlterConfigsRequest,
    m.AlterClientQuotasRequest,
    m.AlterUserScramCredentialsRequest,
)
_REFERENCE_VERSION = 12

# Not compared: the parts of a response about other scenarios.
_LISTS = {
    m.MetadataRequest: ("topics", "name"),
    m.ListGroupsRequest: ("groups", "group_id"),
    m.ListTransactionsRequest: ("transaction_states", "transactional_id"),
    m.ApiVersionsRequest: ("api_keys", "api_key"),
    m.ListConfigResourcesRequest: ("config_resources", "resource_name"),
}
_COMMON = common_versions()


def cluster_like_the_container() -> EmbeddedCluster:
    """Return one node with the settings of the container that the tests start."""
    return EmbeddedCluster(
        brokers=1, configs={"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "0"}
    )


class Excuse(NamedTuple):
    """A permitted difference: a pattern such as ``Produce.responses[].partition_responses[].error_code``."""

    where: str
    reason: str
    applies: Callable[[Any, Any, int], bool] = lambda embedded, real, version: True
    request: Callable[[Any], bool] = lambda request: True


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One step with different responses."""

    seed: int
    number: int
    step: Step
    request: Request[Any]
    differences: Sequence[Difference]

    def __str__(self) -> str:
        lines = "\n  ".join(map(str, self.differences[:12]))
        return f"seed {self.seed}, step {self.number}: {self.request} in version {self.step.version}\n  {lines}"


async def disagreements(
    scenario: Scenario, embedded: Side, real: Side, excuses: Sequence[Excuse]
) -> AsyncIterator[Disagreement]:
    """Send every step to both brokers; yield each difference that no Excuse permits.

    After the first one the two brokers may be in different states: later differences may only follow from it.
    """
    for number, step in enumerate(scenario.steps):
        if step.before is not None:
            for side in (embedded, real):
                await step.before(side)
        requests = [step.make(side) for side in (embedded, real)]
        answers = [await side.try_to_ask(request, step.version) for side, request in zip((embedded, real), requests)]
        if step.only_of_scenario:
            for answer in answers:
                _keep_own(step, answer, scenario.prefix)
        if step.after is not None:
            for side, request, answer in zip((embedded, real), requests, answers):
                if not isinstance(answer, Outcome):
                    step.after(side, request, answer)
        seen = [comparable(side, answer) for side, answer in zip((embedded, real), answers)]
        disagreements = [
            difference
            for difference in differences(step.kind.__name__.removesuffix("Request"), *seen)
            if not is_excused(difference, requests[0], step.version, excuses)
        ]
        if not disagreements and step.changes:
            disagreements = await _settle(step, embedded, real)
        if disagreements:
            yield Disagreement(scenario.seed, number, step, requests[0], disagreements)


def is_excused(difference: Difference, request: Request[Any], version: int, excuses: Sequence[Excuse]) -> bool:
    """Return whether one of the excuses permits the difference in the responses to the request."""
    return any(
        re.fullmatch(excuse.where, difference.path)
        and excuse.request(request)
        and excuse.applies(difference.embedded, difference.real, version)
        for excuse in excuses
    )


def _keep_own(step: Step, answer: Any, prefix: str) -> None:
    if not isinstance(answer, Outcome):
        name_of_list, name = _LISTS[step.kind]
        everything = getattr(answer, name_of_list)
        own = [item for item in everything if not _is_foreign(getattr(item, name), prefix)]
        setattr(answer, name_of_list, own)


def _is_foreign(name: str | int | None, prefix: str) -> bool:
    if isinstance(name, int):
        return name not in _COMMON
    if name is None or name.startswith(prefix):
        return False
    return not name or name.startswith("__") or "-" in name  # names with a dash belong to other tests


async def clean_up(scenario: Scenario, real: Side) -> None:
    """Delete the scenario's topics from a broker that is used again."""
    answer = await real.ask(m.MetadataRequest(topics=None), _REFERENCE_VERSION)
    names = [topic.name for topic in answer.topics if topic.name and topic.name.startswith(scenario.prefix)]
    await real.ask(m.DeleteTopicsRequest(topic_names=names, timeout_ms=5000), 5)


# Changes: a real broker applies them a moment after its response.


async def _settle(step: Step, embedded: Side, real: Side) -> list[Difference]:
    """Wait until the real broker shows the topics as the embedded one does. Returns what still differs after
    DEADLINE."""
    names = [name for name in step.changes if re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name)]
    if not names:
        return []
    remaining: list[Difference] = []
    for look in (_topics_seen, _configs_seen):
        expected = await look(embedded, names)
        deadline = asyncio.get_running_loop().time() + DEADLINE
        while remaining := list(differences(f"after {step.kind.__name__}", expected, await look(real, names))):
            if asyncio.get_running_loop().time() > deadline:
                return remaining
    await _until_served(real, names)
    if step.kind in _CONFIG_CHANGES:
        await _until_in_force(real, f"barrier-{names[0][:200]}")  # another scenario's name: deletion takes a moment
    return []


async def _until_in_force(side: Side, barrier: str) -> None:
    """Wait until a change is in force. It is visible before; a topic that is created now is served only after that."""
    await side.ask(_barrier(barrier), 7)
    await _until_served(side, [barrier], all_of_them=True)
    await side.ask(m.DeleteTopicsRequest(topic_names=[barrier], timeout_ms=5000), 5)


def _barrier(name: str) -> m.CreateTopicsRequest:
    topic = m.CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return m.CreateTopicsRequest(topics=[topic])


async def _topics_seen(side: Side, names: list[str]) -> Any:
    request = m.MetadataRequest(
        topics=[m.MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )
    return comparable(side, await side.ask(request, _REFERENCE_VERSION))


async def _configs_seen(side: Side, names: list[str]) -> Any:
    resources = [
        m.DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None) for name in names
    ]
    answer = await side.ask(m.DescribeConfigsRequest(resources=resources), 4)
    return [
        (result.resource_name, sorted((config.name, config.value) for config in result.configs))
        for result in answer.results
    ]


async def _until_served(side: Side, names: list[str], *, all_of_them: bool = False) -> None:
    """Wait until ListOffsets succeeds for every partition that metadata has."""
    async with asyncio.timeout(DEADLINE):
        while True:
            seen = await side.ask(
                m.MetadataRequest(
                    topics=[m.MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
                ),
                _REFERENCE_VERSION,
            )
            topics = [
                m.ListOffsetsRequestTopic(
                    name=topic.name or "",
                    partitions=[
                        m.ListOffsetsRequestPartition(partition_index=part.partition_index, timestamp=-1)
                        for part in topic.partitions
                    ],
                )
                for topic in seen.topics
                if topic.partitions
            ]
            if all_of_them and len(topics) < len(names):
                continue
            answer = await side.ask(m.ListOffsetsRequest(replica_id=-1, topics=topics), 7)
            if not any(part.error_code for topic in answer.topics for part in topic.partitions):
                return


async def until_ready(side: Side) -> None:
    """Create what a broker creates on the first request: the topic of group offsets, and a block of producer ids."""
    find = m.FindCoordinatorRequest(coordinator_keys=[STRANGER])
    offsets = m.OffsetFetchRequest(groups=[m.OffsetFetchRequestGroup(group_id=STRANGER, topics=[])])
    identity = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    transactional = m.InitProducerIdRequest(transactional_id=STRANGER, transaction_timeout_ms=1000)
    async with asyncio.timeout(DEADLINE):
        while (await side.ask(find, 4)).coordinators[0].error_code:
            pass
        while (await side.ask(offsets, 8)).groups[0].error_code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            pass
        while (await side.ask(identity, 0)).error_code:
            pass
        while (
            (await side.ask(m.FindCoordinatorRequest(key_type=1, coordinator_keys=[STRANGER]), 4))
            .coordinators[0]
            .error_code
        ):
            pass
        while (await side.ask(transactional, 4)).error_code:
            pass
