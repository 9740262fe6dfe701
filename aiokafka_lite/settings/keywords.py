"""The settings of each client as keyword arguments, for type checkers and editors.

docs/list_settings.py writes the classes from the fields of the configurations; only the imports are written by hand.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TypedDict

from ..events import ClientEvent
from ..types import Compression, CompressionName
from .client import Mechanism, SecurityProtocol
from .consumer import IsolationName, OffsetResetName
from .group import GroupProtocolName, HeartbeatThreadMode
from .java import Acks
from .producer import TopicSettings
from .security import PasswordProvider, TokenProvider
from .share import AcknowledgementMode, AcquireMode


class ClientSettings(TypedDict, total=False):
    """The settings of every client: the fields of `ClientConfig`."""

    client_id: str
    """The client's name in the brokers' logs, metrics and quotas. Default: ``"aiokafka-lite"``."""
    client_rack: str
    """The rack of this client. If it is set, consumers read from a replica in the same rack (KIP-392). Producers use it
    with ``partitioner_rack_aware``. Default: empty."""
    request_timeout: float
    """Seconds that one request waits for its response. After that time, the connection is closed. Default: 30 s."""
    api_timeout: float
    """Seconds that a whole operation may take, retries included, if the call has no ``timeout``. Default: 60 s."""
    connect_timeout: float
    """Seconds to open a connection, TLS handshake and login included. Default: 10 s."""
    retry_backoff: float
    """Seconds before the first retry of a request, at least 0.001. The pause doubles, with jitter. Default: 0.1 s."""
    retry_backoff_max: float
    """The longest pause between retries, in seconds. Default: 1 s."""
    retry_backoff_function: Callable[[int], float] | None
    """A function that replaces ``retry_backoff`` and ``retry_backoff_max``. It is called with the number of failed
    attempts, from 1 on, and returns the seconds to wait. If it raises, or does not return a number >= 0, the two
    settings apply, and one warning is logged. Default: none."""
    reconnect_backoff: float
    """Seconds before the client connects again to an unreachable broker. The pause doubles, with jitter. Default: 50
    ms."""
    reconnect_backoff_max: float
    """The longest pause between connection attempts, in seconds. Default: 10 s."""
    metadata_max_age: float
    """Seconds after which metadata is refreshed even if nothing has changed. Default: 300 s."""
    connections_max_idle: float
    """Seconds after which an unused connection is closed. Default: 540 s."""
    max_response_size: int
    """The largest response in bytes that the client accepts. A larger response is a ProtocolError. The limit is 1 MiB
    until a connection has logged in. Default: 128 MiB."""
    response_memory: int | None
    """The maximum number of bytes that incomplete responses of all connections may have together, at least
    ``max_response_size``. The first 64 KiB of each response do not count. When the bytes are used up, connections stop
    reading until other responses are complete, so brokers send more slowly. None: four times ``max_response_size``.
    Default: four times ``max_response_size``."""
    max_open_requests: int
    """The maximum number of requests of one connection without a response; further requests wait. Connections for
    Produce requests have ``max_in_flight_requests_per_connection`` instead; connections for Fetch requests send one at
    a time. Default: 100."""
    local_address: str | None
    """The IP address of this machine from which the client connects. With None, the operating system chooses it.
    Default: none."""
    proxy: str | None
    """The proxy between this machine and the brokers: ``"socks5://host:port"`` or ``"http://host:port"`` (by CONNECT),
    with ``user:password@`` before the host if it requires them. It resolves the names of the brokers. Needs the extra
    ``proxy``. Default: none."""
    enable_metrics_push: bool
    """Whether producers, consumers and share consumers push metrics to brokers whose operator subscribes to them
    (KIP-714). Default: ``True``."""
    on_event: Callable[[ClientEvent], object] | None
    """A function that is called at once with each event of the client: see ``aiokafka_lite.events``. It runs in the
    event loop, so it must not block. An exception is logged once per kind, and changes nothing. Default: none."""
    security_protocol: SecurityProtocol
    """The protocol of the brokers' listener: ``"PLAINTEXT"``, ``"SSL"``, ``"SASL_PLAINTEXT"`` or ``"SASL_SSL"``.
    Default: ``"PLAINTEXT"``."""
    ssl_context: ssl.SSLContext | None
    """A complete SSLContext, instead of the other ``ssl_`` settings. If None, one is made from them. Default: made from
    the next settings."""
    ssl_cafile: str | None
    """The trusted CA certificates: the path of a PEM or PKCS#12 file, or PEM text. If None, the system's certificates.
    Default: the system's certificates."""
    ssl_ca_password: str | None
    """The password of ``ssl_cafile``, if it is a PKCS#12 store. Default: none."""
    ssl_certfile: str | None
    """The client's certificate and its intermediate certificates: the path of a PEM file, or PEM text. Or the path of a
    PKCS#12 store with the private key. Default: none."""
    ssl_keyfile: str | None
    """The private key of the certificate: path or PEM text. If None, it is read from ``ssl_certfile``. Default:
    none."""
    ssl_key_password: str | None
    """The password of an encrypted private key, or of the PKCS#12 store in ``ssl_certfile``. Default: none."""
    ssl_check_hostname: bool
    """Whether a broker's certificate must match the host name that the client connects to. Default: ``True``."""
    sasl_mechanism: Mechanism | None
    """``"PLAIN"``, ``"SCRAM-SHA-256"``, ``"SCRAM-SHA-512"``, ``"OAUTHBEARER"`` or ``"GSSAPI"`` (Kerberos). Default:
    none."""
    sasl_username: str | None
    """The user name for PLAIN and SCRAM. May be missing if ``sasl_password`` is a function that returns it. Default:
    none."""
    sasl_password: str | PasswordProvider | None
    """The password for PLAIN and SCRAM. Or a function, sync or async, that returns the password, or a tuple of the user
    name and the password. It is called for each login. Default: none."""
    sasl_tokenauth: bool
    """Whether SCRAM uses a delegation token (KIP-48): the user name is its id, the password its HMAC in base64.
    Default: ``False``."""
    sasl_oauth_token_provider: TokenProvider | None
    """A function, sync or async, that returns a token for OAUTHBEARER. It is called for each login. Default: none."""
    sasl_oauth_extensions: Mapping[str, str] | None
    """Pairs to send with each token of OAUTHBEARER (KIP-342), such as ``{"logicalCluster": "lkc-1"}``. Default:
    none."""
    sasl_kerberos_service_name: str | None
    """The first part of the brokers' Kerberos principals, for GSSAPI. If None, it is ``"kafka"``. Default: none."""
    sasl_kerberos_keytab: str | None
    """The path of a keytab for GSSAPI. If None, tickets are in the user's ticket cache, where kinit puts them. Default:
    none."""
    sasl_kerberos_principal: str | None
    """The client's Kerberos principal, such as ``"orders@EXAMPLE.COM"``. If None, the keytab or the cache names it.
    Default: none."""


class ProducerSettings(ClientSettings, total=False):
    """The settings of ``Producer``: the fields of ``ClientConfig`` and ``ProducerConfig``."""

    allow_auto_create_topics: bool
    """Whether using a topic may create it, if the broker allows that. Default: ``True``."""
    acks: Acks
    """The replicas that must have a record before it counts as written: ``"all"`` or -1 (all in-sync replicas), 1 (the
    leader), or 0 (none). Default: ``"all"``."""
    transactional_id: str | None
    """The name under which the producer writes transactions. It stays the same over restarts: a new producer of this
    name ends the open transaction of the old one, and fences it. None means no transactions. Default: no
    transactions."""
    transaction_timeout: float
    """Seconds after which the coordinator aborts a transaction that is still open, and fences its producer. Default: 60
    s."""
    two_phase_commit: bool
    """Whether another system, such as a database, decides about the transactions (KIP-939). No timeout aborts them, and
    ``prepare_transaction`` returns what the other system has to store. Default: ``False``."""
    prepared_transaction: str | None
    """With ``two_phase_commit``, the last result of ``prepare_transaction`` that the other system has stored. The start
    commits this transaction, unless it has ended already, and aborts any other one. Default: none."""
    idempotence: bool | None
    """Whether brokers drop duplicates that retries cause. None means True if ``acks="all"`` and ``retries`` > 0.
    Default: on with ``acks="all"`` and ``retries`` above 0."""
    retries: int
    """How often a batch is sent again after a retriable error, within ``delivery_timeout``. 0 means never. Default:
    2147483647."""
    linger: float
    """Seconds that a batch waits for more records, from its first one. With 0, a batch has the records of one turn of
    the event loop. Default: 0 s."""
    batch_size: int
    """The largest batch of one partition in bytes, estimated after compression. Default: 64 KiB."""
    max_request_size: int
    """The largest record and the largest request, in bytes. Default: 1 MiB."""
    buffer_memory: int
    """Bytes of unacknowledged records. When it is full, ``send`` waits and ``send_nowait`` raises BufferFull. Default:
    32 MiB."""
    max_in_flight_requests_per_connection: int
    """Requests to a broker without a response yet, at most 5 with idempotence. Default: 5."""
    compression: CompressionName | Compression
    """The codec of batches: ``"none"``, ``"gzip"``, ``"snappy"``, ``"lz4"`` or ``"zstd"``. Default: ``"none"``."""
    compression_level: int | None
    """The level of the codec: gzip 0 to 9, lz4 0 to 17, zstd -131072 to 22. None is the codec's default. Default: the
    codec's own."""
    partitioner_rack_aware: bool
    """Whether records without a key go to partitions whose leader is in ``client_rack``, while there are such leaders
    (KIP-1123). The rack of each broker is its ``broker.rack``. Default: ``False``."""
    delivery_timeout: float
    """Seconds from accepting a record until it fails with KafkaTimeout, if it is not acknowledged. Default: 120 s."""
    max_block: float
    """Seconds that ``send`` waits for metadata, for room in the buffer, and for an async serializer. Default: 60 s."""
    topic_settings: Mapping[str, TopicSettings] | None
    """Other settings for some topics, by name: ``{"audit": TopicSettings(compression="zstd", linger=0.1)}``. A topic
    can have its own ``compression``, ``compression_level``, ``batch_size``, ``linger`` and ``delivery_timeout``.
    Default: none."""


class ConsumerSettings(ClientSettings, total=False):
    """The settings of ``Consumer`` and ``ConsumerGroup``: the fields of their configurations."""

    allow_auto_create_topics: bool
    """Whether using a topic may create it, if the broker allows that. Default: ``True``."""
    auto_offset_reset: OffsetResetName | timedelta
    """The start without a committed offset: ``"earliest"``, ``"latest"``, ``"none"`` (raise), or a time span back.
    Default: ``"earliest"``."""
    isolation_level: IsolationName
    """``"read_committed"`` skips records of open and aborted transactions. ``"read_uncommitted"`` returns all. Default:
    ``"read_committed"``."""
    fetch_min_bytes: int
    """Bytes that a broker collects before it responds to a fetch. Default: 1 byte."""
    fetch_max_bytes: int
    """The maximum number of bytes in one response, less than ``max_response_size``. A larger first batch is still
    returned whole. Default: 50 MiB."""
    fetch_max_wait: float
    """Seconds that a broker waits for ``fetch_min_bytes``. Default: 0.5 s."""
    fetch_memory: int | None
    """The maximum number of bytes to buffer from all brokers together, in compressed form. Each broker has an equal
    part of it, at most ``fetch_max_bytes``. None: ``fetch_max_bytes`` from each broker. Default: ``fetch_max_bytes``
    from each broker."""
    max_partition_fetch_bytes: int
    """The maximum number of bytes of one partition in one response. A larger first batch is still returned whole.
    Default: 1 MiB."""
    check_crcs: bool
    """Whether the checksums of batches are verified. Default: ``True``."""
    max_decompressed_size: int
    """The maximum number of bytes of one batch after decompression. A larger batch raises CorruptRecord. Default: 128
    MiB."""
    group_instance_id: str | None
    """A name that makes the member static (KIP-345): it keeps its partitions when it restarts. Default: none."""
    session_timeout: float
    """Seconds without a heartbeat after which the coordinator removes the member from the group. Default: 45 s."""
    heartbeat_interval: float
    """Seconds between heartbeats. It must be less than ``session_timeout``, and should be at most a third. Default: 3
    s."""
    max_poll_interval: float
    """The longest time between two reads, in seconds. After that time, the member leaves the group until it reads
    again. Default: 300 s."""
    rebalance_timeout: float | None
    """Seconds that other members wait for this member to revoke partitions and join. None is ``max_poll_interval``.
    Default: ``max_poll_interval``."""
    auto_commit: bool
    """Whether marked records are committed automatically: on a timer, before partitions are revoked, and on close.
    Default: ``True``."""
    auto_commit_interval: float
    """Seconds between automatic commits. Default: 5 s."""
    group_protocol: GroupProtocolName
    """``"classic"``, ``"consumer"`` or ``"auto"``. With ``"consumer"`` (KIP-848), the brokers assign the partitions,
    and set session timeout and heartbeat interval. ``"auto"`` is ``"consumer"`` if the cluster has it. Default:
    ``"classic"``."""
    heartbeat_thread: HeartbeatThreadMode
    """Whether a thread sends heartbeats while the event loop is blocked, until ``max_poll_interval``. ``"auto"``: after
    the first block of more than a second, so that block may still end the session. ``"always"``: from the start.
    Default: ``"auto"``."""
    group_remote_assignor: str | None
    """The brokers' assignment strategy under the consumer protocol: ``"uniform"`` or ``"range"``. None: their default.
    Default: the first strategy of the brokers."""


class ShareConsumerSettings(ClientSettings, total=False):
    """The settings of ``ShareConsumer``: the fields of its configurations."""

    allow_auto_create_topics: bool
    """Whether using a topic may create it, if the broker allows that. Default: ``True``."""
    acknowledgement_mode: AcknowledgementMode
    """``"implicit"``: the next read accepts the records that were returned and not acknowledged. ``"explicit"``: the
    user acknowledges each record before the next read. Default: ``"implicit"``."""
    acquire_mode: AcquireMode
    """``"batch_optimized"``: brokers acquire whole batches, so a fetch may return more than ``max_fetch_records``.
    ``"record_limit"``: never more (KIP-1206, Kafka 4.2; older brokers ignore it). Default: ``"batch_optimized"``."""
    max_fetch_records: int
    """The maximum number of records that one fetch acquires at one broker, from 1 to 10,000. Java's share consumer
    calls it ``max.poll.records``. Default: 500."""
    fetch_min_bytes: int
    """Bytes that a broker collects before it responds to a fetch. Default: 1 byte."""
    fetch_max_bytes: int
    """The maximum number of bytes in one response, less than ``max_response_size``. Default: 50 MiB."""
    fetch_max_wait: float
    """Seconds that a broker waits for ``fetch_min_bytes``. Acknowledgements to this broker wait for the same time.
    Default: 0.5 s."""
    renew_locks_for: float
    """Seconds for which the client renews the locks of the records of one read (KIP-1222, Kafka 4.2). They begin again
    when the program acknowledges one of them. After that, the locks end, and the records are delivered again. 0 renews
    no lock. Default: 300 s."""
    heartbeat_thread: HeartbeatThreadMode
    """Whether a thread sends heartbeats while the event loop is blocked, for up to 5 minutes. ``"auto"``: after the
    first block of more than a second, so that block may still end the session. ``"always"``: from the start. Default:
    ``"auto"``."""
    check_crcs: bool
    """Whether the checksums of batches are verified. Default: ``True``."""
    max_decompressed_size: int
    """The maximum number of bytes of one batch after decompression. A larger batch raises CorruptRecord. Default: 128
    MiB."""
