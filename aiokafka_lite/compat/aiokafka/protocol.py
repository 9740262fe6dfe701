"""The request that instrumentations send with ``AIOKafkaClient.send``, and the names of responses for annotations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .admin_values import AlteredConfigs, DescribedConfigs, DescribedGroups, TopicErrorCodes, TopicErrors
from .structs import BrokerMetadata

Response = TopicErrors | TopicErrorCodes | DescribedConfigs | AlteredConfigs | DescribedGroups


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """Asks for the brokers and the id of the cluster. The arguments have no effect."""

    topics: Sequence[str] | None = None
    allow_auto_topic_creation: bool | None = None


class MetadataResponse(NamedTuple):
    """The response to ``MetadataRequest``, without topics."""

    brokers: list[BrokerMetadata]
    cluster_id: str | None
    controller_id: int | None
