"""The names of methods in other clients (aiokafka, kafka-python, confluent-kafka, Java's), and what to use instead.

``settings.names`` has the errors for settings of other clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Never


def named_elsewhere(counterparts: Mapping[str, str]) -> Callable[[object, str], Never]:
    """Return the ``__getattr__`` of a class: its AttributeError says what to use for these names of other clients.

    Python calls it only for a name that the object does not have. Type checkers must not see it, because they would
    accept every name.
    """

    def raise_attribute_error(client: object, name: str) -> Never:
        if any(name in vars(kind) for kind in type(client).__mro__):
            object.__getattribute__(client, name)  # a property that has raised AttributeError: raise its own error
        text = f"{type(client).__name__!r} object has no attribute {name!r}"
        if name in counterparts:
            text += f"; use {counterparts[name]}"
        raise AttributeError(text, name=name, obj=client)

    return raise_attribute_error


PRODUCER = {
    "stop": "close()",
    "send_and_wait": "send(), which returns when the record is acknowledged",
    "send_batch": "send_many()",
    "create_batch": "send_many()",
    "produce": "send_nowait(), put() or send()",
    "produce_batch": "send_many()",
    "purge": "abort_transaction(), or close(timeout=0)",
    "poll": "nothing: the event loop delivers results; await the Delivery",
    "list_topics": "partitions_for(topic), or Admin",
    "init_transactions": "start(), which does it if transactional_id is set",
    "bootstrap_connected": "health()",
    "cluster_id": "Admin, whose cluster.describe() has it",
    "set_sasl_credentials": "another client with the new password",
}
CONSUMER = {
    "stop": "close()",
    "getone": "await anext(consumer), or 'async for record in consumer'",
    "getmany": "poll(max_records=500, timeout=1.0), which returns one list",
    "consume": "poll(max_records=500, timeout=1.0)",
    "workers": "ConsumerGroup(...).consume(topics, Workers(handle))",
    "last_stable_offset": "lag(), or offsets_for_times()",
    "get_watermark_offsets": "beginning_offsets([partition]) and end_offsets([partition])",
    "store_offsets": "mark(record)",
    "list_topics": "topics(), or Admin",
    "consumer_group_metadata": "group_metadata()",
    "seek_to_committed_offsets": "seek_to_committed()",
    "partitions_for_topic": "partitions_for(topic)",
    "offsets_for_time": "offsets_for_times({partition: milliseconds})",
    "highwater": "high_watermark(partition)",
    "last_poll_timestamp": "metrics().group.last_poll_ago",
    "bootstrap_connected": "health()",
    "memberid": "group_metadata().member_id",
    "commit_async": "commit(); make a task of it to continue meanwhile",
    "unassign": "assign([])",
    "incremental_assign": "assign(), with all partitions",
    "incremental_unassign": "assign(), with the other partitions",
    "cluster_id": "Admin, whose cluster.describe() has it",
    "set_sasl_credentials": "another client with the new password",
}
CONSUMER_GROUP = {
    "start": "consume(topics, handler), which also joins the group",
    "run": "consume(topics, handler)",
    "subscribe": "consume(topics, handler)",
    "stop": "close()",
    "getone": "Consumer, or consume(topics, handler)",
    "getmany": "Consumer, or consume(topics, handler)",
    "poll": "Consumer, or consume(topics, handler)",
    "commit": "commit() of the session, which the handler gets",
    "mark": "mark(record) of the session, which the handler gets",
    "assignment": "claims of the session, which the handler gets",
    "group_metadata": "group_metadata() of the session, which the handler gets",
    "seek": "session.offsets.reset(partition, offset) in the handler's setup()",
    **dict.fromkeys(("position", "lag", "assign", "add_listener"), "Consumer, which has it"),
}
SHARE_CONSUMER = {
    "stop": "close()",
    "getone": "await anext(consumer), or 'async for record in consumer'",
    "getmany": "poll(max_records=500, timeout=1.0), which returns one list",
    "consume": "poll(max_records=500, timeout=1.0)",
    "subscribe": "topics of the constructor",
    "acknowledge": "accept(record), release(record) or reject(record)",
    "mark": "accept(record), release(record) or reject(record)",
    "commit_sync": "commit()",
    "commit_async": "commit_nowait()",
    **dict.fromkeys(
        ("assign", "seek", "position", "pause", "committed"),
        "Consumer: the brokers choose the records of a share group",
    ),
}
SCHEMA_REGISTRY = {
    "register_schema": "register(subject, schema)",
    "register_schema_full_response": "register(subject, schema)",
    "lookup_schema": "lookup(subject, schema)",
    "get_schema": "by_id(schema_id)",
    "get_schema_by_guid": "by_guid(guid)",
    "get_version": "by_version(subject, version)",
    "get_latest_version": "latest(subject)",
    "get_subjects": "subjects()",
    "get_versions": "versions(subject)",
    "test_compatibility": "check_compatibility(subject, schema)",
    "get_compatibility": "compatibility(subject)",
    "get_config": "compatibility(subject)",
    "set_config": "set_compatibility(level, subject)",
    "get_mode": "mode(subject)",
}
DELIVERY = {
    "get": "await delivery, or result() when done() is True",
    "cancel": "nothing: an accepted record is sent in any case",
    **dict.fromkeys(("offset", "partition", "timestamp"), "await delivery, which returns a RecordMetadata"),
    **dict.fromkeys(("add_callback", "add_errback"), "report(function), which calls function(metadata, error)"),
    "add_done_callback": "report(function), or future(), which asyncio.wait accepts too",
    "succeeded": "done(), and exception() is None",
    "failed": "done(), and exception() is not None",
}
TRANSACTION = {
    "commit": "nothing: leaving 'async with' commits",
    "abort": "an exception in the body, or producer.abort_transaction()",
    "flush": "producer.flush()",
    "send_offsets_to_transaction": "send_offsets(offsets, group_metadata)",
}
ADMIN = {
    "create_topics": "topics.create()",
    "delete_topics": "topics.delete()",
    "list_topics": "topics.list()",
    "describe_topics": "topics.describe()",
    "create_partitions": "topics.add_partitions()",
    "describe_configs": "configs.describe()",
    "alter_configs": "configs.alter()",
    "incremental_alter_configs": "configs.alter()",
    "list_groups": "groups.list()",
    "list_consumer_groups": "groups.list()",
    "describe_consumer_groups": "groups.describe()",
    "delete_consumer_groups": "groups.delete()",
    "list_consumer_group_offsets": "groups.offsets()",
    "alter_consumer_group_offsets": "groups.alter_offsets()",
    "list_offsets": "offsets.list()",
    "delete_records": "records.delete()",
    "describe_cluster": "cluster.describe()",
    "describe_acls": "acls.describe()",
    "create_acls": "acls.create()",
    "delete_acls": "acls.delete()",
    "find_coordinator": "groups.coordinators()",
    "describe_groups": "groups.describe()",
    "delete_groups": "groups.delete()",
    "list_group_offsets": "groups.offsets()",
    "alter_group_offsets": "groups.alter_offsets()",
    "reset_group_offsets": "groups.reset_offsets()",
    "delete_group_offsets": "groups.delete_offsets()",
    "remove_group_members": "groups.remove_members()",
    "list_partition_offsets": "offsets.list()",
    "describe_topic_partitions": "topics.pages()",
    "list_config_resources": "configs.list()",
    "reset_configs": "configs.alter()",
    "elect_leaders": "leaders.elect()",
    "alter_partition_reassignments": "reassignments.alter()",
    "list_partition_reassignments": "reassignments.list()",
    "describe_log_dirs": "log_dirs.describe()",
    "alter_replica_log_dirs": "log_dirs.alter()",
    "describe_user_scram_credentials": "users.describe()",
    "alter_user_scram_credentials": "users.set_passwords()",
    "describe_features": "cluster.features()",
    "update_features": "cluster.update_features()",
    "describe_metadata_quorum": "cluster.quorum()",
    "api_versions": "cluster.api_versions()",
    "get_broker_version_data": "cluster.api_versions()",
    "cluster_id": "cluster.describe()",
    "list_transactions": "transactions.list()",
    "describe_transactions": "transactions.describe()",
    "describe_producers": "transactions.describe_producers()",
    "find_hanging_transactions": "transactions.find_hanging()",
    "abort_transaction": "transactions.abort()",
}
