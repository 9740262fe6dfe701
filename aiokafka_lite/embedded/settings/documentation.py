"""The documentation of each setting in DescribeConfigs."""

from __future__ import annotations

from .configs import TOPIC_KEYS

_OF_TOPICS = {
    "cleanup.policy": "delete removes records by age and size, compact all but the last record of each key.",
    "compression.gzip.level": "The level of gzip when the broker compresses; -1 is gzip's default.",
    "compression.lz4.level": "The level of lz4 when the broker compresses.",
    "compression.type": "The codec of batches in the log; producer keeps the codec of each producer.",
    "compression.zstd.level": "The level of zstd when the broker compresses.",
    "delete.retention.ms": "How long compaction keeps tombstones, in milliseconds.",
    "file.delete.delay.ms": "How long a deleted segment stays on disk, in milliseconds. No effect here.",
    "flush.messages": "The number of records after which a log is flushed to disk. No effect on a log in memory.",
    "flush.ms": (
        "The time after which a log on disk is flushed, in milliseconds: as in Kafka, only with "
        "log.flush.scheduler.interval.ms."
    ),
    "follower.replication.throttled.replicas": "Throttled followers, as partition:broker; * is all. No effect here.",
    "index.interval.bytes": "The bytes of records between two entries of the offset index. No effect here.",
    "leader.replication.throttled.replicas": "Throttled leaders, as partition:broker; * is all. No effect here.",
    "local.retention.bytes": "Bytes kept locally with tiered storage; -2 is retention.bytes. No effect here.",
    "local.retention.ms": "Milliseconds kept locally with tiered storage; -2 is retention.ms. No effect here.",
    "max.compaction.lag.ms": "The longest time before a record is compacted, in milliseconds.",
    "max.message.bytes": "The largest batch that the broker accepts, in bytes, as it is on the wire.",
    "message.timestamp.after.max.ms": "How far a timestamp may be ahead of the broker's clock, in milliseconds.",
    "message.timestamp.before.max.ms": "How far a timestamp may be behind the broker's clock, in milliseconds.",
    "message.timestamp.type": "Whether timestamps are the producer's, CreateTime, or the broker's, LogAppendTime.",
    "min.cleanable.dirty.ratio": "The share of a log that must be new before the next compaction.",
    "min.compaction.lag.ms": "The shortest time before a record may be compacted, in milliseconds.",
    "min.insync.replicas": "The number of in-sync replicas that a write with acks=all requires.",
    "preallocate": "Whether the file of a new segment is allocated in full. No effect here.",
    "remote.log.copy.disable": "Whether copying to tiered storage is off. No effect here.",
    "remote.log.delete.on.disable": "Whether disabling tiered storage deletes its records. No effect here.",
    "remote.storage.enable": "Whether old segments move to tiered storage. No effect here.",
    "retention.bytes": "The bytes that each partition keeps; -1 is no limit.",
    "retention.ms": "How long records are kept, in milliseconds; -1 is no limit.",
    "segment.bytes": "The size of a segment, in bytes.",
    "segment.index.bytes": "The largest size of a segment's index, in bytes. No effect here.",
    "segment.jitter.ms": "The largest random time by which a segment ends early, in milliseconds. No effect here.",
    "segment.ms": "The time after which a log starts a new segment, in milliseconds.",
    "unclean.leader.election.enable": "Whether a replica that is not in sync may become leader, which loses records.",
}

NO_EFFECT = "No effect here."
"""The documentation of all other settings."""

DOCUMENTATION = {
    **_OF_TOPICS,
    **{key.broker_name: _OF_TOPICS[name] for name, key in TOPIC_KEYS.items() if key.broker_name is not None},
    "advertised.listeners": "The addresses that clients get, by listener.",
    "allow.everyone.if.no.acl.found": "With ACLs: whether any client may use a resource that has no ACL.",
    "authorizer.class.name": "The authorizer; empty allows everything, StandardAuthorizer puts ACLs in force.",
    "auto.create.topics.enable": "Whether a metadata request creates a missing topic.",
    "broker.id": "The id of the broker, under its old name.",
    "broker.rack": "The rack of the broker: readers in the same rack may read from its replicas (KIP-392).",
    "connection.failed.authentication.delay.ms": "The delay of the answer to a failed login, in milliseconds.",
    "connections.max.idle.ms": "The time without a request after which a connection is closed, in milliseconds.",
    "connections.max.reauth.ms": "The longest session after a login, in milliseconds; 0 is no limit (KIP-368).",
    "default.replication.factor": "The default number of replicas of a topic.",
    "delegation.token.expiry.check.interval.ms": "How long expired delegation tokens are kept, in milliseconds.",
    "delegation.token.expiry.time.ms": "The time after which a delegation token must be renewed, in milliseconds.",
    "delegation.token.max.lifetime.ms": "The longest lifetime of a delegation token, in milliseconds.",
    "delegation.token.secret.key": "The key that makes the HMACs of delegation tokens; without it there are no tokens.",
    "delete.topic.enable": "Whether topics may be deleted.",
    "fetch.max.bytes": "The largest fetch response, in bytes.",
    "group.consumer.assignors": "The assignors of the consumer protocol, the default first: uniform, range.",
    "group.consumer.heartbeat.interval.ms": "The time between heartbeats of the consumer protocol, in milliseconds.",
    "group.consumer.max.size": "The most members that a group of the consumer protocol may have.",
    "group.consumer.migration.policy": "Which protocol a group of consumers may change to (KIP-848).",
    "group.consumer.session.timeout.ms": (
        "The time without heartbeats after which a member of the consumer protocol is removed, in milliseconds."
    ),
    "group.initial.rebalance.delay.ms": "How long a new group waits for more members, in milliseconds.",
    "group.max.session.timeout.ms": "The longest session timeout of a member, in milliseconds.",
    "group.max.size": "The most members that a group may have.",
    "group.min.session.timeout.ms": "The shortest session timeout of a member, in milliseconds.",
    "group.streams.assignment.interval.ms": (
        "The shortest time between two assignments of a streams group, in milliseconds."
    ),
    "group.streams.heartbeat.interval.ms": "The time between heartbeats of a streams group, in milliseconds.",
    "group.streams.initial.rebalance.delay.ms": "How long a new streams group waits for more members, in milliseconds.",
    "group.streams.max.size": "The most members that a streams group may have.",
    "group.streams.num.standby.replicas": "The number of standby tasks of each stateful task in a streams group.",
    "group.streams.session.timeout.ms": (
        "The time without heartbeats after which a member of a streams group is removed, in milliseconds."
    ),
    "listener.security.protocol.map": "The security protocol of each listener.",
    "listeners": "The addresses that the broker listens on.",
    "log.cleaner.backoff.ms": "The interval between two checks of compacted topics, in milliseconds.",
    "log.cleaner.threads": "The number of threads of the log cleaner. No effect here.",
    "log.dirs": "The directories of the logs: one, in which replicas are described.",
    "log.flush.scheduler.interval.ms": "The interval between two checks of flush.ms, in milliseconds.",
    "log.retention.check.interval.ms": "The interval between two checks of retention, in milliseconds.",
    "log.retention.hours": "log.retention.ms in hours, if that and log.retention.minutes are not set.",
    "log.retention.minutes": "log.retention.ms in minutes, if that is not set.",
    "log.roll.hours": "log.roll.ms in hours, if that is not set.",
    "max.connection.creation.rate": "The new connections that are accepted in a second; further connections wait.",
    "max.connections": "The largest number of connections.",
    "max.connections.per.ip": "The largest number of connections from an IP address.",
    "max.connections.per.ip.overrides": "The same for single IP addresses, such as 127.0.0.1:100.",
    "max.incremental.fetch.session.cache.slots": "The largest number of fetch sessions.",
    "node.id": "The id of the broker.",
    "num.partitions": "The default number of partitions of a topic.",
    "offsets.retention.check.interval.ms": "How often expired offsets are removed, in milliseconds.",
    "offsets.retention.minutes": "How long the offsets of a group without members are kept, in minutes.",
    "group.share.delivery.count.limit": "The most deliveries of a record of a share group.",
    "group.share.heartbeat.interval.ms": "The time between heartbeats of a member of a share group, in milliseconds.",
    "group.share.max.share.sessions": "The most share sessions at a broker.",
    "group.share.max.size": "The most members that a share group may have.",
    "group.share.partition.max.record.locks": "The most records of a partition that are in flight in a share group.",
    "group.share.record.lock.duration.ms": "How long a member may hold records of a share group, in milliseconds.",
    "group.share.session.timeout.ms": "The time without heartbeats after which a member of a share group is removed.",
    "offsets.topic.num.partitions": "The number of partitions of the topic of committed offsets.",
    "offsets.topic.replication.factor": "The number of replicas of the topic of committed offsets.",
    "producer.id.expiration.ms": "The time after which the state of an idle producer is dropped, in milliseconds.",
    "queued.max.request.bytes": "The bytes of requests that all connections may hold; -1 is no limit.",
    "quota.window.num": "The number of samples for the average usage of a client.",
    "quota.window.size.seconds": "The length of a sample of quota.window.num, in seconds.",
    "replica.lag.time.max.ms": "The time after which a replica that lags leaves the in-sync set, in milliseconds.",
    "sasl.enabled.mechanisms": "The mechanisms by which clients may log in.",
    "sasl.server.max.receive.size": "The largest frame before the login is complete, in bytes.",
    "socket.request.max.bytes": "The largest request that the broker accepts, in bytes.",
    "ssl.client.auth": "Whether a client's certificate is required, requested, or ignored (none).",
    "ssl.principal.mapping.rules": "How the subject of a client's certificate becomes the name of its principal.",
    "super.users": "With ACLs: principals that may do everything, such as User:admin, separated by semicolons.",
    "telemetry.max.bytes": "The largest push of metrics by a client, in bytes (KIP-714).",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": (
        "How often transactions that have timed out are aborted, in milliseconds."
    ),
    "transaction.max.timeout.ms": "The longest transaction timeout that a producer may request, in milliseconds.",
    "transaction.partition.verification.enable": (
        "Whether a leader asks the transaction coordinator before it writes the first batch of a transaction."
    ),
    "transaction.remove.expired.transaction.cleanup.interval.ms": (
        "How often unused transactional ids are deleted, in milliseconds."
    ),
    "transaction.state.log.min.isr": "The setting min.insync.replicas of the topic of transactions.",
    "transaction.state.log.num.partitions": "The number of partitions of the topic of transactions.",
    "transaction.state.log.replication.factor": "The number of replicas of the topic of transactions.",
    "transaction.state.log.segment.bytes": "The size of a segment of the topic of transactions, in bytes.",
    "transactional.id.expiration.ms": "The time after which an unused transactional id expires, in milliseconds.",
}
