"""Every setting that a broker of Apache Kafka 4.3.1 describes: 340 names with their declarations.

The table comes from the release itself: from its DescribeConfigs, and from the valid values that its ``KafkaConfig``
prints. A line contains the name, the type, the scope of changes at run time, the default, and the valid values. ``+``
marks the settings that have an effect in the embedded broker. The scope is ``fixed`` (no changes), ``broker`` (for one
broker), or ``cluster`` (also for all brokers). ``-`` is no default, ``""`` an empty one, ``~`` ignores the case.
"""

from __future__ import annotations

from .keys import ConfigKey, ConfigType, UpdateMode

_TABLE = """
add.partitions.to.txn.retry.backoff.max.ms int fixed 100 0..
add.partitions.to.txn.retry.backoff.ms int fixed 20 1..
+advertised.listeners list fixed -
alter.config.policy.class.name class fixed -
alter.log.dirs.replication.quota.window.num int fixed 11 1..
alter.log.dirs.replication.quota.window.size.seconds int fixed 1 1..
+authorizer.class.name string fixed ""
+auto.create.topics.enable boolean fixed true
auto.leader.rebalance.enable boolean fixed true
background.threads int cluster 10 1..
broker.heartbeat.interval.ms int fixed 2000
+broker.id int fixed -1
+broker.rack string fixed -
broker.session.timeout.ms int fixed 9000
client.quota.callback.class class fixed -
+compression.gzip.level int cluster -1 -1|1|2|3|4|5|6|7|8|9
+compression.lz4.level int cluster 9 1..17
+compression.type string cluster producer uncompressed|zstd|lz4|snappy|gzip|producer
+compression.zstd.level int cluster 3 -131072..22
config.providers list cluster ""
+connection.failed.authentication.delay.ms int fixed 100 0..
+connections.max.idle.ms long fixed 600000
+connections.max.reauth.ms long fixed 0
controlled.shutdown.enable boolean fixed true
controller.listener.names list fixed -
controller.quorum.append.linger.ms int fixed 25 0..
controller.quorum.auto.join.enable boolean fixed false
controller.quorum.bootstrap.servers list fixed ""
controller.quorum.election.backoff.max.ms int fixed 1000 0..
controller.quorum.election.timeout.ms int fixed 1000 0..
controller.quorum.fetch.max.bytes int fixed 1048576 1..
controller.quorum.fetch.snapshot.max.bytes int fixed 1048576 1..
controller.quorum.fetch.timeout.ms int fixed 2000 0..
controller.quorum.request.timeout.ms int fixed 2000 0..
controller.quorum.retry.backoff.ms int fixed 20 0..
controller.quorum.voters list fixed ""
controller.quota.window.num int fixed 11 1..
controller.quota.window.size.seconds int fixed 1 1..
controller.socket.timeout.ms int fixed 30000
cordoned.log.dirs list broker ""
create.topic.policy.class.name class fixed -
+default.replication.factor int fixed 1
+delegation.token.expiry.check.interval.ms long fixed 3600000 1..
+delegation.token.expiry.time.ms long fixed 86400000 1..
+delegation.token.max.lifetime.ms long fixed 604800000 1..
+delegation.token.secret.key password fixed -
delete.records.purgatory.purge.interval.requests int fixed 1
+delete.topic.enable boolean fixed true
early.start.listeners list fixed -
+fetch.max.bytes int fixed 57671680 1024..
fetch.purgatory.purge.interval.requests int fixed 1000
follower.fetch.last.tiered.offset.enable boolean cluster false
group.consumer.assignment.interval.ms int cluster 1000 0..
+group.consumer.assignors list fixed uniform,range
+group.consumer.heartbeat.interval.ms int fixed 5000 1..
group.consumer.max.assignment.interval.ms int fixed 15000 0..
group.consumer.max.heartbeat.interval.ms int fixed 15000 1..
group.consumer.max.session.timeout.ms int fixed 60000 1..
+group.consumer.max.size int fixed 2147483647 1..
+group.consumer.migration.policy string fixed bidirectional ~DISABLED|DOWNGRADE|UPGRADE|BIDIRECTIONAL
group.consumer.min.assignment.interval.ms int fixed 0 0..
group.consumer.min.heartbeat.interval.ms int fixed 5000 1..
group.consumer.min.session.timeout.ms int fixed 45000 1..
+group.consumer.session.timeout.ms int fixed 45000 1..
group.coordinator.append.linger.ms int fixed -1 -1..
group.coordinator.background.threads int fixed 2 1..
group.coordinator.cached.buffer.max.bytes int cluster 1048588 524288..
group.coordinator.rebalance.protocols list fixed classic,consumer,streams consumer|classic|share|streams
group.coordinator.threads int fixed 4 1..
+group.initial.rebalance.delay.ms int fixed 3000
+group.max.session.timeout.ms int fixed 1800000
+group.max.size int fixed 2147483647 1..
+group.min.session.timeout.ms int fixed 6000
group.share.assignment.interval.ms int cluster 1000 0..
group.share.assignors list fixed simple
+group.share.delivery.count.limit int fixed 5 2..10
+group.share.heartbeat.interval.ms int fixed 5000 1..
group.share.max.assignment.interval.ms int fixed 15000 0..
group.share.max.delivery.count.limit int fixed 10 5..25
group.share.max.heartbeat.interval.ms int fixed 15000 1..
group.share.max.partition.max.record.locks int fixed 4000 2000..10000
group.share.max.record.lock.duration.ms int fixed 60000 30000..3600000
group.share.max.session.timeout.ms int fixed 60000 1..
+group.share.max.share.sessions int fixed 2000 1..
+group.share.max.size int fixed 200 1..1000
group.share.min.assignment.interval.ms int fixed 0 0..
group.share.min.delivery.count.limit int fixed 2 2..5
group.share.min.heartbeat.interval.ms int fixed 5000 1..
group.share.min.partition.max.record.locks int fixed 100 100..2000
group.share.min.record.lock.duration.ms int fixed 15000 1000..30000
group.share.min.session.timeout.ms int fixed 45000 1..
+group.share.partition.max.record.locks int fixed 2000 100..10000
+group.share.record.lock.duration.ms int fixed 30000 1000..3600000
+group.share.session.timeout.ms int fixed 45000 1..
+group.streams.assignment.interval.ms int cluster 1000 0..
+group.streams.heartbeat.interval.ms int fixed 5000 1..
+group.streams.initial.rebalance.delay.ms int fixed 3000 0..
group.streams.max.assignment.interval.ms int fixed 15000 0..
group.streams.max.heartbeat.interval.ms int fixed 15000 1..
group.streams.max.session.timeout.ms int fixed 60000 1..
+group.streams.max.size int fixed 2147483647 1..
group.streams.max.standby.replicas int fixed 2 0..
group.streams.min.assignment.interval.ms int fixed 0 0..
group.streams.min.heartbeat.interval.ms int fixed 5000 1..
group.streams.min.session.timeout.ms int fixed 45000 1..
+group.streams.num.standby.replicas int fixed 0 0..
+group.streams.session.timeout.ms int fixed 45000 1..
initial.broker.registration.timeout.ms int fixed 60000
inter.broker.listener.name string fixed -
kafka.metrics.polling.interval.secs int fixed 10 1..
kafka.metrics.reporters list fixed ""
leader.imbalance.check.interval.seconds long fixed 300 1..
+listener.security.protocol.map string broker SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
+listeners list broker PLAINTEXT://:9092
+log.cleaner.backoff.ms long cluster 15000 0..
log.cleaner.dedupe.buffer.size long cluster 134217728
+log.cleaner.delete.retention.ms long cluster 86400000 0..
log.cleaner.enable boolean fixed true
log.cleaner.io.buffer.load.factor double cluster 0.9
log.cleaner.io.buffer.size int cluster 524288 0..
log.cleaner.io.max.bytes.per.second double cluster 1.7976931348623157E308
+log.cleaner.max.compaction.lag.ms long cluster 9223372036854775807 1..
+log.cleaner.min.cleanable.ratio double cluster 0.5 0..1
+log.cleaner.min.compaction.lag.ms long cluster 0 0..
log.cleaner.threads int cluster 1 0..
+log.cleanup.policy list cluster delete compact|delete
log.dir list fixed /tmp/kafka-logs
log.dir.failure.timeout.ms long fixed 30000 1..
+log.dirs list fixed -
+log.flush.interval.messages long cluster 9223372036854775807 1..
+log.flush.interval.ms long cluster -
log.flush.offset.checkpoint.interval.ms int fixed 60000 0..
+log.flush.scheduler.interval.ms long fixed 9223372036854775807
log.flush.start.offset.checkpoint.interval.ms int fixed 60000 0..
log.index.interval.bytes int cluster 4096 0..
log.index.size.max.bytes int cluster 10485760 4..
log.local.retention.bytes long cluster -2 -2..
log.local.retention.ms long cluster -2 -2..
+log.message.timestamp.after.max.ms long cluster 3600000 0..
+log.message.timestamp.before.max.ms long cluster 9223372036854775807 0..
+log.message.timestamp.type string cluster CreateTime CreateTime|LogAppendTime
log.preallocate boolean cluster false
+log.retention.bytes long cluster -1
+log.retention.check.interval.ms long fixed 300000 1..
+log.retention.hours int fixed 168
+log.retention.minutes int fixed -
+log.retention.ms long cluster -
+log.roll.hours int fixed 168 1..
log.roll.jitter.hours int fixed 0 0..
log.roll.jitter.ms long cluster -
+log.roll.ms long cluster -
+log.segment.bytes int cluster 1073741824 1048576..
log.segment.delete.delay.ms long cluster 60000 0..
+max.connection.creation.rate int cluster 2147483647 0..
+max.connections int cluster 2147483647 0..
+max.connections.per.ip int cluster 2147483647 0..
+max.connections.per.ip.overrides string cluster ""
+max.incremental.fetch.session.cache.slots int fixed 1000 0..
max.request.partition.size.limit int fixed 2000 1..
+message.max.bytes int cluster 1048588 0..
metadata.log.dir string fixed -
metadata.log.max.record.bytes.between.snapshots long fixed 20971520 1..
metadata.log.max.snapshot.interval.ms long fixed 3600000 0..
metadata.log.segment.bytes int fixed 1073741824 8388608..
metadata.log.segment.ms long fixed 604800000
metadata.max.idle.interval.ms int fixed 500 0..
metadata.max.retention.bytes long fixed 104857600
metadata.max.retention.ms long fixed 604800000
metric.reporters list cluster org.apache.kafka.common.metrics.JmxReporter
metrics.num.samples int fixed 2 1..
metrics.recording.level string fixed INFO
metrics.sample.window.ms long fixed 30000 1..
+min.insync.replicas int cluster 1 1..
+node.id int fixed - 0..
num.io.threads int cluster 8 1..
num.network.threads int cluster 3 1..
+num.partitions int fixed 1 1..
num.recovery.threads.per.data.dir int cluster 2 1..
num.replica.alter.log.dirs.threads int fixed -
num.replica.fetchers int cluster 1 1..
offset.metadata.max.bytes int fixed 4096
offsets.commit.timeout.ms int fixed 5000 1..
offsets.load.buffer.size int fixed 5242880 1..
+offsets.retention.check.interval.ms long fixed 600000 1..
+offsets.retention.minutes int fixed 10080 1..
offsets.topic.compression.codec int fixed 0
+offsets.topic.num.partitions int fixed 50 1..
+offsets.topic.replication.factor short fixed 3 1..
offsets.topic.segment.bytes int fixed 104857600 1..
principal.builder.class class broker org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
process.roles list fixed - broker|controller
+producer.id.expiration.ms int cluster 86400000 1..
producer.purgatory.purge.interval.requests int fixed 1000
+queued.max.request.bytes long fixed -1
queued.max.requests int fixed 500 1..
+quota.window.num int fixed 11 1..
+quota.window.size.seconds int fixed 1 1..
remote.fetch.max.wait.ms int cluster 500 1..
remote.list.offsets.request.timeout.ms long cluster 30000 1..
remote.log.index.file.cache.total.size.bytes long cluster 1073741824 1..
remote.log.manager.copier.thread.pool.size int cluster 10 1..
remote.log.manager.copy.max.bytes.per.second long cluster 9223372036854775807 1..
remote.log.manager.copy.quota.window.num int fixed 11 1..
remote.log.manager.copy.quota.window.size.seconds int fixed 1 1..
remote.log.manager.expiration.thread.pool.size int cluster 10 1..
remote.log.manager.fetch.max.bytes.per.second long cluster 9223372036854775807 1..
remote.log.manager.fetch.quota.window.num int fixed 11 1..
remote.log.manager.fetch.quota.window.size.seconds int fixed 1 1..
remote.log.manager.follower.thread.pool.size int cluster 2 1..
remote.log.manager.task.interval.ms long fixed 30000 1..
remote.log.manager.thread.pool.size int fixed 2 1..
remote.log.metadata.custom.metadata.max.bytes int fixed 128 0..
remote.log.metadata.manager.class.name string fixed org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path string fixed -
remote.log.metadata.manager.impl.prefix string fixed rlmm.config.
remote.log.metadata.manager.listener.name string fixed -
remote.log.reader.max.pending.tasks int fixed 100 1..
remote.log.reader.threads int cluster 10 1..
remote.log.storage.manager.class.name string fixed -
remote.log.storage.manager.class.path string fixed -
remote.log.storage.manager.impl.prefix string fixed rsm.config.
remote.log.storage.system.enable boolean fixed false
replica.fetch.backoff.ms int fixed 1000 0..
replica.fetch.max.bytes int fixed 1048576 0..
replica.fetch.min.bytes int fixed 1
replica.fetch.response.max.bytes int fixed 10485760 0..
replica.fetch.wait.max.ms int fixed 500
replica.high.watermark.checkpoint.interval.ms long fixed 5000
+replica.lag.time.max.ms long fixed 30000
replica.selector.class string fixed -
replica.socket.receive.buffer.bytes int fixed 65536
replica.socket.timeout.ms int fixed 30000
replication.quota.window.num int fixed 11 1..
replication.quota.window.size.seconds int fixed 1 1..
request.timeout.ms int fixed 30000
sasl.client.callback.handler.class class fixed -
+sasl.enabled.mechanisms list broker GSSAPI
sasl.jaas.config password broker -
sasl.kerberos.kinit.cmd string broker /usr/bin/kinit
sasl.kerberos.min.time.before.relogin long broker 60000
sasl.kerberos.principal.to.local.rules list broker DEFAULT
sasl.kerberos.service.name string broker -
sasl.kerberos.ticket.renew.jitter double broker 0.05
sasl.kerberos.ticket.renew.window.factor double broker 0.8
sasl.login.callback.handler.class class fixed -
sasl.login.class class fixed -
sasl.login.connect.timeout.ms int fixed -
sasl.login.read.timeout.ms int fixed -
sasl.login.refresh.buffer.seconds short broker 300
sasl.login.refresh.min.period.seconds short broker 60
sasl.login.refresh.window.factor double broker 0.8
sasl.login.refresh.window.jitter double broker 0.05
sasl.login.retry.backoff.max.ms long fixed 10000
sasl.login.retry.backoff.ms long fixed 100
sasl.mechanism.controller.protocol string fixed GSSAPI
sasl.mechanism.inter.broker.protocol string broker GSSAPI
sasl.oauthbearer.assertion.algorithm string fixed RS256 ~ES256|RS256
sasl.oauthbearer.assertion.claim.aud string fixed -
sasl.oauthbearer.assertion.claim.exp.seconds int fixed 300 0..86400
sasl.oauthbearer.assertion.claim.iss string fixed -
sasl.oauthbearer.assertion.claim.jti.include boolean fixed false
sasl.oauthbearer.assertion.claim.nbf.seconds int fixed 60 0..3600
sasl.oauthbearer.assertion.claim.sub string fixed -
sasl.oauthbearer.assertion.file string fixed -
sasl.oauthbearer.assertion.private.key.file string fixed -
sasl.oauthbearer.assertion.private.key.passphrase password fixed -
sasl.oauthbearer.assertion.template.file string fixed -
sasl.oauthbearer.client.credentials.client.id string fixed -
sasl.oauthbearer.client.credentials.client.secret password fixed -
sasl.oauthbearer.clock.skew.seconds int fixed 30
sasl.oauthbearer.expected.audience list fixed ""
sasl.oauthbearer.expected.issuer string fixed -
sasl.oauthbearer.jwks.endpoint.refresh.ms long fixed 3600000
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long fixed 10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long fixed 100
sasl.oauthbearer.jwks.endpoint.url string fixed -
sasl.oauthbearer.jwt.retriever.class class fixed org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class class fixed org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
sasl.oauthbearer.scope string fixed -
sasl.oauthbearer.scope.claim.name string fixed scope
sasl.oauthbearer.sub.claim.name string fixed sub
sasl.oauthbearer.token.endpoint.url string fixed -
sasl.server.callback.handler.class class fixed -
+sasl.server.max.receive.size int fixed 524288
security.inter.broker.protocol string fixed PLAINTEXT PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL
security.providers string fixed -
share.coordinator.append.linger.ms int fixed -1 -1..
share.coordinator.cached.buffer.max.bytes int cluster 1048588 524288..
share.coordinator.load.buffer.size int fixed 5242880 1..
share.coordinator.snapshot.update.records.per.snapshot int fixed 500 0..500
share.coordinator.state.topic.compression.codec int fixed 0
share.coordinator.state.topic.min.isr short fixed 2 1..
share.coordinator.state.topic.num.partitions int fixed 50 1..
share.coordinator.state.topic.replication.factor short fixed 3 1..
share.coordinator.state.topic.segment.bytes int fixed 104857600 1..
share.coordinator.threads int fixed 1 1..
share.coordinator.write.timeout.ms int fixed 5000 1..
share.fetch.purgatory.purge.interval.requests int fixed 1000
socket.connection.setup.timeout.max.ms long fixed 30000
socket.connection.setup.timeout.ms long fixed 10000
socket.listen.backlog.size int fixed 50 1..
socket.receive.buffer.bytes int fixed 102400
+socket.request.max.bytes int fixed 104857600 1..
socket.send.buffer.bytes int fixed 102400
ssl.allow.dn.changes boolean fixed false
ssl.allow.san.changes boolean fixed false
ssl.cipher.suites list broker ""
+ssl.client.auth string broker none required|requested|none
ssl.enabled.protocols list broker TLSv1.2,TLSv1.3
ssl.endpoint.identification.algorithm string broker https
ssl.engine.factory.class class broker -
ssl.key.password password broker -
ssl.keymanager.algorithm string broker SunX509
ssl.keystore.certificate.chain password broker -
ssl.keystore.key password broker -
ssl.keystore.location string broker -
ssl.keystore.password password broker -
ssl.keystore.type string broker JKS
+ssl.principal.mapping.rules string fixed DEFAULT
ssl.protocol string broker TLSv1.3
ssl.provider string broker -
ssl.secure.random.implementation string broker -
ssl.trustmanager.algorithm string broker PKIX
ssl.truststore.certificates password broker -
ssl.truststore.location string broker -
ssl.truststore.password password broker -
ssl.truststore.type string broker JKS
+telemetry.max.bytes int fixed 1048576 1..
+transaction.abort.timed.out.transaction.cleanup.interval.ms int fixed 10000 1..
+transaction.max.timeout.ms int fixed 900000 1..
+transaction.partition.verification.enable boolean cluster true
+transaction.remove.expired.transaction.cleanup.interval.ms int fixed 3600000 1..
transaction.state.log.load.buffer.size int fixed 5242880 1..
+transaction.state.log.min.isr int fixed 2 1..
+transaction.state.log.num.partitions int fixed 50 1..
+transaction.state.log.replication.factor short fixed 3 1..
+transaction.state.log.segment.bytes int fixed 104857600 1..
+transaction.two.phase.commit.enable boolean fixed false
+transactional.id.expiration.ms int fixed 604800000 1..
+unclean.leader.election.enable boolean cluster false
"""  # noqa: E501


def _parse(line: str) -> tuple[str, ConfigKey]:
    name, kind, scope, default, *valid = line.split()
    key = ConfigKey(
        ConfigType[kind.upper()],
        None if default == "-" else default.replace('""', ""),
        scope=UpdateMode(scope),
        has_effect=name.startswith("+"),
    )
    name = name.removeprefix("+")
    if not valid:
        return name, key
    if ".." in valid[0]:
        low, _, high = valid[0].partition("..")
        return name, key._replace(minimum=int(low), maximum=int(high) if high else None)
    if valid[0].startswith("~"):
        return name, key._replace(pattern=f"(?i:{valid[0][1:]})")
    return name, key._replace(allowed=tuple(valid[0].split("|")))


STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

BROKER_KEYS: dict[str, ConfigKey] = dict(map(_parse, _TABLE.split("\n")[1:-1]))
"""The settings of brokers by name."""
BROKER_KEYS["authorizer.class.name"] = BROKER_KEYS["authorizer.class.name"]._replace(allowed=("", STANDARD_AUTHORIZER))
_OVERRIDES = "max.connections.per.ip.overrides"
BROKER_KEYS[_OVERRIDES] = BROKER_KEYS[_OVERRIDES]._replace(pattern=r"([^,]+:\d{1,9}(,[^,]+:\d{1,9})*)?")

PLUGIN_KEYS = {
    "allow.everyone.if.no.acl.found": ConfigKey(ConfigType.BOOLEAN, None, scope=UpdateMode.NONE),
    "super.users": ConfigKey(ConfigType.STRING, None, scope=UpdateMode.NONE, pattern=r"([^:;]+:[^;]+(;|$))*"),
}
"""Settings of Kafka's authorizer, which the broker itself does not know: DescribeConfigs hides their values."""

THROTTLE_KEYS = {
    name: ConfigKey(ConfigType.LONG, None, minimum=0, has_effect=False)
    for name in (
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
}
"""Limits of a reassignment. Only a running broker accepts them, and it describes them only while they are set."""
