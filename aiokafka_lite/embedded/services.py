"""Imitations of managed services: brokers with the versions, logins and habits that are known of them.

They are not made from measurements of the services, and show only what differs for a client. A
program that works with an imitation may still fail at the service; see docs/managed-kafka.md.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..arguments import must_be
from ..errors import ConfigurationError
from ..protocol import messages as m
from .cluster import EmbeddedCluster
from .cluster_config import ClusterConfig
from .security.security import Security
from .settings.versions import VersionRanges

_TRANSACTIONS = (24, 25, 26, 27, 28, 65, 66)
_ACLS = (29, 30, 31)
_SCRAM_AND_TOKENS = (38, 39, 40, 41, 50, 51)
_NEW_GROUPS = (68, 69, 76, 77, 78, 79, 80, 81, 88, 89, 90, 91, 92)
"""The APIs of the consumer protocol, of share groups and of streams groups."""
_QUOTAS, _REASSIGNMENTS, _DESCRIBE_TOPIC_PARTITIONS = (48, 49), (45, 46), (75,)

_LONGEST_TOKEN = 900
"""Seconds. Tokens for MSK are valid for 15 minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    """What differs from Apache Kafka. ``login`` is the mechanism; ``user`` replaces the name of the user."""

    as_kafka: str
    login: str | None
    user: str = "service-user"
    versions: VersionRanges = field(default_factory=dict)
    without: tuple[int, ...] = ()
    configs: Mapping[str, str] = field(default_factory=dict)
    moves_leaders: bool = False


SERVICES: Mapping[str, _Service] = {
    # Metadata up to version 9; no transactions and no zstd (which needs Produce 7 and Fetch 10) in the standard tier.
    "event-hubs": _Service(
        as_kafka="2.8",
        login="PLAIN",
        user="$ConnectionString",
        versions={m.ProduceRequest.api_key: (0, 6), m.FetchRequest.api_key: (0, 9), m.MetadataRequest.api_key: (0, 9)},
        without=(*_TRANSACTIONS, *_ACLS, *_SCRAM_AND_TOKENS, *_QUOTAS, *_REASSIGNMENTS),
        configs={"message.max.bytes": "1048576", "auto.create.topics.enable": "true"},
    ),
    # Apache Kafka with another login, and the defaults of MSK for its brokers.
    "msk-iam": _Service(
        as_kafka="3.9",
        login="OAUTHBEARER",
        without=_SCRAM_AND_TOKENS,
        configs={"auto.create.topics.enable": "false", "min.insync.replicas": "2", "default.replication.factor": "3"},
    ),
    "redpanda": _Service(
        as_kafka="3.3",
        login="SCRAM-SHA-256",
        versions={m.ProduceRequest.api_key: (0, 7), m.MetadataRequest.api_key: (0, 8)},
        without=(*_NEW_GROUPS, *_DESCRIBE_TOPIC_PARTITIONS, 38, 39, 40, 41),
        configs={"auto.create.topics.enable": "false"},
    ),
    # Agents without partitions of their own: the leader of a partition is another one in each answer.
    "warpstream": _Service(as_kafka="3.9", login=None, moves_leaders=True),
}
"""The services by name."""


def service_cluster(
    service: str, *, brokers: int = 3, tcp: bool = True, password: str = "service-password", seed: int | None = None
) -> EmbeddedCluster:
    """Return a cluster that imitates a managed service: ``"event-hubs"``, ``"msk-iam"``, ``"redpanda"`` or
    ``"warpstream"``.

    ``client_settings()`` of the cluster has the login, over TLS; with ``tcp=False`` the login is not encrypted. For
    ``"msk-iam"``, pass ``sasl_oauth_token_provider=AwsMskIam(region)`` to the client: the cluster reads the signed
    token, without checking its signature. ``password`` is that of the only user; for Event Hubs, the connection string.

    Raises ConfigurationError for an unknown service, and for the arguments as ``EmbeddedCluster`` does.
    """
    profile = SERVICES.get(service) if isinstance(service, str) else None
    if profile is None:
        raise ConfigurationError(must_be("service", f"one of {', '.join(SERVICES)}", service))
    factor = str(min(brokers, int(profile.configs.get("default.replication.factor", brokers))))
    configs = {**profile.configs, "default.replication.factor": factor}
    if "min.insync.replicas" in configs:
        configs["min.insync.replicas"] = str(min(brokers, int(configs["min.insync.replicas"])))
    cluster = EmbeddedCluster(
        brokers,
        tcp=tcp,
        as_kafka=profile.as_kafka,
        configs=configs,
        security=_security(profile, password, tcp=tcp),
        seed=seed,
        config=ClusterConfig(versions=profile.versions, without_apis=profile.without),
    )
    if profile.moves_leaders:
        cluster.on(m.MetadataRequest, times=None).alter(_leader_mover(cluster))
    return cluster


def _security(profile: _Service, password: str, *, tcp: bool) -> Security | None:
    if profile.login is None:
        return None
    protocol = "SASL_SSL" if tcp else "SASL_PLAINTEXT"
    if profile.login == "OAUTHBEARER":
        return Security(protocol, mechanisms=["OAUTHBEARER"], check_token=claims_of_msk_token)
    return Security(protocol, users={profile.user: password}, mechanisms=[profile.login])


def claims_of_msk_token(token: str) -> dict[str, object]:
    """Read a token for MSK: a signed request for ``kafka-cluster:Connect``, in base64. The signature is not checked.

    Raises ValueError for another token.
    """
    try:
        url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    except (binascii.Error, ValueError):
        raise ValueError("the token is not a signed request") from None
    fields = {name: values[0] for name, values in parse_qs(url.query).items()}
    if fields.get("Action") != "kafka-cluster:Connect" or not (url.hostname or "").startswith("kafka."):
        raise ValueError("the token is not for kafka-cluster:Connect")
    if "X-Amz-Signature" not in fields or not 0 < int(fields.get("X-Amz-Expires", "0")) <= _LONGEST_TOKEN:
        raise ValueError("the token is not signed, or is valid for more than 15 minutes")
    return {"sub": fields.get("X-Amz-Credential", "").partition("/")[0]}


def _leader_mover(cluster: EmbeddedCluster) -> Callable[[Any], m.MetadataResponse]:
    """Return a function that moves the leader of each partition in an answer to Metadata, before it is sent."""

    def move(response: m.MetadataResponse) -> m.MetadataResponse:
        for topic in response.topics:
            for partition in topic.partitions:
                if topic.name is None or len(partition.isr_nodes) < 2 or topic.is_internal:
                    continue
                following = partition.isr_nodes.index(partition.leader_id) + 1 if partition.leader_id >= 0 else 0
                leader = partition.isr_nodes[following % len(partition.isr_nodes)]
                cluster.leadership.move_leader((topic.name, partition.partition_index), leader)
                state = cluster.state_of(topic.name, partition.partition_index)
                partition.leader_id, partition.leader_epoch = state.leader, state.leader_epoch
        return response

    return move
