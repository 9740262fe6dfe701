"""Handlers of requests: the context that they get, and their registration.

A handler is a function of a ``RequestContext`` and a request. It sees the parts of one broker, and the client by a
narrow protocol: no listener, no connection, no other broker. ``@handles(ProduceRequest)`` registers it.
``@handles(DescribeAclsRequest, requires=AclOperation.DESCRIBE)`` refuses clients without that operation on the cluster.

A handler reads and changes the state of the broker without an ``await`` in between. Pure work that may take long, and
that comes first, is a function with ``@prepares``. The connection runs it in steps and lets others run between them.
Until the last step it changes nothing, as if the request were still on its way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ..acls import AclOperation, AclResourceType
from ..errors import NO_ERROR, ErrorCode
from ..protocol.connection import RequestHeader
from ..protocol.schema import Request, Response
from .client_telemetry import ClientTelemetry
from .coordinators.groups.coordinator import GroupCoordinator
from .coordinators.groups.heartbeat_group import GroupRefusal
from .coordinators.share.groups import HostedShareGroups
from .coordinators.share.partitions import SharePartitions
from .coordinators.share.session import ShareSessions
from .coordinators.transactions.coordinator import TransactionCoordinator
from .coordinators.transactions.requests import TransactionRequests
from .error_responses import error_response
from .metadata.broker_loggers import BrokerLoggers
from .metadata.changes import ClusterChanges
from .metadata.controller import Controller, Refused, Registration
from .metadata.leadership import PartitionLeadership
from .metadata.topics import PartitionKey
from .metadata.view import MetadataView
from .quotas import QuotaLimits, QuotaManager
from .replicas.fetch_session import FetchSessions
from .replicas.manager import ReplicaManager
from .replicas.partition import NotLeader, Partition
from .security.authorizer import CLUSTER, OPERATIONS, Authorizer, Resource
from .security.delegation_tokens import DelegationTokens
from .security.scram_users import ScramUsers
from .settings.configs import BrokerSettings
from .settings.versions import OfferedVersions

Answer = Response | None | Awaitable[Response | None]
"""The response; None if the request gets no response; an awaitable if the response has to wait."""
Handler = Callable[["RequestContext", Any], Answer]
H = TypeVar("H", bound=Callable[..., Answer])


class LongWork(Protocol):
    """Work that takes steps of some milliseconds each, and perhaps long ones.

    A long step may run in a thread, because it shares no state with other code.
    """

    next_is_long: bool

    def step(self) -> bool:
        """Do the next step. False if it was the last one."""

    def restart(self) -> None:
        """Drop the results of the steps so far: the next step is the first one."""


Preparation = Callable[["RequestContext", Any], Iterator[LongWork]]
P = TypeVar("P", bound=Preparation)

HANDLERS: dict[type[Request[Any]], Handler] = {}
"""The handlers of the modules imported so far; ``handlers`` imports all of them."""

PREPARATIONS: dict[type[Request[Any]], Preparation] = {}
"""The functions with ``@prepares``."""

LONG_STEP = "long step"
"""The first part of the names of threads that do a long step."""


def prepares(request: type[Request[Any]]) -> Callable[[P], P]:
    """Register the decorated function: it returns the work that may be done before the handler of a request."""

    def register(preparation: P) -> P:
        PREPARATIONS[request] = preparation
        return preparation

    return register


def handles(
    request: type[Request[Any]], *, requires: AclOperation | None = None, feature: str | None = None
) -> Callable[[H], H]:
    """Register the decorated function as the handler of a request.

    A client that may not do the operation ``requires`` on the cluster gets CLUSTER_AUTHORIZATION_FAILED. Where the
    ``feature`` of the cluster is not finalized, every client gets UNSUPPORTED_VERSION.
    """

    def register(handler: H) -> H:
        def guarded(context: RequestContext, message: Request[Any]) -> Answer:
            if feature is not None and context.broker.controller.features.level(feature) == 0:
                return error_response(message, ErrorCode.UNSUPPORTED_VERSION, context.version)
            if requires is not None and not context.allows(requires):
                return error_response(message, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, context.version)
            return handler(context, message)

        HANDLERS[request] = handler if requires is None and feature is None else guarded
        return handler

    return register


class CloseConnection(Exception):
    """Raised by a handler: the connection must end without a response. The text is the reason, for the log."""


class NamedTopic(Protocol):
    """A topic in a request: named before some version, by id from then on."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> bytes: ...


class ConnectedClient(Protocol):
    """The client of a connection."""

    principal: str
    has_token: bool
    """Whether the client has logged in with a delegation token."""
    listener: str
    """The name of the listener: responses name the ports of brokers on the same listener."""
    client_address: str
    """The IP address, or "memory"."""
    connection_id: int

    @property
    def client_host(self) -> str: ...


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """The parts of one broker that handlers use. Owner: the node."""

    node_id: int
    cluster_id: str
    versions: OfferedVersions
    settings: BrokerSettings
    metadata: MetadataView
    replica_manager: ReplicaManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    transaction_requests: TransactionRequests
    fetch_sessions: FetchSessions
    share_groups: HostedShareGroups
    shares: SharePartitions
    share_sessions: ShareSessions
    quotas: QuotaManager
    quota_limits: QuotaLimits
    controller: Controller
    changes: ClusterChanges
    leadership: PartitionLeadership
    authorizer: Authorizer
    loggers: BrokerLoggers
    scram_users: ScramUsers
    tokens: DelegationTokens
    fetch_max_bytes: int
    """The setting fetch.max.bytes, which cannot change: each fetch needs it."""
    telemetry: ClientTelemetry | None
    """None without a receiver of the metrics of clients."""
    topic_creation_delay: float
    """Seconds from a Metadata request that creates a topic until the topic exists."""
    now_ms: Callable[[], int]
    """Milliseconds of the broker's wall clock, for timestamps."""


class RequestContext:
    """The context of a request: the broker, the client, and the request's header."""

    __slots__ = ("broker", "busy", "client", "client_id", "header", "prepared", "principal", "throttle_ms", "version")

    def __init__(self, broker: BrokerParts, client: ConnectedClient, header: RequestHeader) -> None:
        self.broker: BrokerParts = broker
        self.client: ConnectedClient = client
        self.header: RequestHeader = header
        self.client_id: str = header.client_id or ""
        self.principal: str = client.principal
        self.version: int = header.version
        self.throttle_ms: int = 0
        self.busy: float = 0.0
        """Seconds of CPU time that the preparation has taken."""
        self.prepared: dict[int, Any] = {}
        """The results of the preparation, for the handler. The keys are the ids of parts of the request."""

    def port_of(self, broker: Registration) -> int:
        """Return the port of a broker for this client."""
        return broker.ports[self.client.listener]

    # Authorization.

    def allows(self, operation: AclOperation, resource: Resource = CLUSTER) -> bool:
        """Return whether the client may do this to a resource, by default to the cluster."""
        return self.broker.authorizer.allows(self.principal, self.client.client_address, operation, resource)

    def allows_any(self, operation: AclOperation, kind: AclResourceType) -> bool:
        """Return whether the client may do this to at least one resource of a type."""
        return self.broker.authorizer.allows_any(self.principal, self.client.client_address, operation, kind)

    def allows_topic(self, operation: AclOperation, name: str) -> bool:
        if self.broker.authorizer.allows_everything:
            return True
        return self.allows(operation, Resource(AclResourceType.TOPIC, name))

    def allows_group(self, operation: AclOperation, group_id: str) -> bool:
        if self.broker.authorizer.allows_everything:
            return True
        return self.allows(operation, Resource(AclResourceType.GROUP, group_id))

    def allows_transaction(self, operation: AclOperation, transactional_id: str) -> bool:
        return self.allows(operation, Resource(AclResourceType.TRANSACTIONAL_ID, transactional_id))

    def allowed_operations(self, resource: Resource) -> int:
        """Return the operations that the client may do on a resource: a sum of 1 << operation."""
        return sum(1 << operation for operation in OPERATIONS[resource.type] if self.allows(operation, resource))

    # Topics.

    def topic(self, topic: NamedTopic, operation: AclOperation, *, by_id: bool) -> tuple[str, ErrorCode]:
        """Return the name of a requested topic, and its error or NONE. ``by_id``: the request has its id."""
        name: str | None = self.broker.metadata.topic_name(topic.topic_id) if by_id else topic.name
        if name is None:
            return "", ErrorCode.UNKNOWN_TOPIC_ID
        return name, NO_ERROR if self.allows_topic(operation, name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def replica(self, key: PartitionKey, operation: AclOperation | None) -> Partition:
        """Return the replica of a partition on this broker. Raises NotLeader, also if ``operation`` is denied."""
        if operation is not None and not self.allows_topic(operation, key[0]):
            raise NotLeader(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"{operation.name} is denied on topic {key[0]!r}")
        if self.broker.metadata.partition_state(key) is None:
            raise NotLeader(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"unknown partition {key[0]}-{key[1]}")
        return self.broker.replica_manager.require(key)

    def leader(self, key: PartitionKey, operation: AclOperation | None, leader_epoch: int = -1) -> Partition:
        """Return the replica on this broker that leads a partition. Raises NotLeader, also if ``operation`` is
        denied."""
        partition = self.replica(key, operation)
        partition.require_leader(leader_epoch)
        return partition


@contextmanager
def refusal_in(answer: Any) -> Iterator[None]:
    """Put the refusal that ends the block into the error fields of ``answer``, a response or a part of one."""
    try:
        yield
    except (Refused, NotLeader) as refusal:
        answer.error_code, answer.error_message = refusal.code, str(refusal)
    except GroupRefusal as refusal:
        answer.error_code, answer.error_message = refusal.error, refusal.text


def do_step(context: RequestContext, work: LongWork) -> bool:
    """Do the next step in this thread, and count its CPU time as time of the request. False if it was the last step."""
    began = time.thread_time()
    try:
        return work.step()
    finally:
        context.busy += time.thread_time() - began


async def do_next_step(context: RequestContext, work: LongWork) -> bool:
    """Do the next step: a long one in a thread, so that the event loop goes on. False if it was the last step.

    After a cancellation, the thread ends its step, and the result is dropped.
    """
    if not work.next_is_long:
        return do_step(context, work)
    # The loop's default threads may all wait for this very answer: in a test that runs blocking clients in them.
    thread = ThreadPoolExecutor(1, LONG_STEP)
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, do_step, context, work)
    finally:
        thread.shutdown(wait=False)
