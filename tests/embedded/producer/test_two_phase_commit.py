"""Transactions about which another system decides (KIP-939)."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka_lite import Admin, blocking
from aiokafka_lite.acls import AclBinding, AclFilter, AclOperation, AclResourceType
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.cluster.coordinators import CoordinatorKind
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import (
    AuthorizationError,
    BrokerError,
    ConfigurationError,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    KafkaTimeout,
    ProducerFenced,
    TransactionAborted,
    UnsupportedVersion,
)
from aiokafka_lite.producer import Producer
from aiokafka_lite.protocol.messages import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from aiokafka_lite.settings.client import ClientConfig
from aiokafka_lite.types import OffsetAndMetadata
from tests.cancelling import at_every_turn, cancel_after
from tests.embedded.producer.transaction_requests import (
    GROUP,
    HERE,
    committed_offset,
    committed_values,
    metrics_of,
    transactional,
)
from tests.waiting import until

ALLOWED = {"transaction.two.phase.commit.enable": "true"}


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1, auto_create_topics=False, configs=ALLOWED) as cluster:
        await cluster.create_topic("t", 2, 3)
        yield cluster


def two_phase(cluster: EmbeddedCluster, **settings: Any) -> Producer:
    return transactional(cluster, two_phase_commit=True, **settings)


async def prepared(producer: Producer, number: int) -> str:
    """Write one record in a transaction, and prepare it."""
    await producer.begin_transaction()
    producer.send_nowait("t", b"%d" % number, partition=0)
    return await producer.prepare_transaction()


async def test_a_prepared_transaction_is_committed_with_its_offsets_by_the_next_producer(
    cluster: EmbeddedCluster,
) -> None:
    async with two_phase(cluster) as producer:
        await producer.begin_transaction()
        producer.send_nowait("t", b"1", partition=0)
        await producer.send_offsets_to_transaction({HERE: OffsetAndMetadata(7)}, GROUP)
        stored = await producer.prepare_transaction()
    for _ in range(2):  # a second start with the same text changes nothing
        async with two_phase(cluster, prepared_transaction=stored) as producer:
            assert await committed_values(cluster) == [1]
            assert await committed_offset(cluster) == 7
    async with two_phase(cluster, prepared_transaction=stored) as producer, producer.transaction():
        await producer.send("t", b"2", partition=0)
    assert await committed_values(cluster) == [1, 2]


@pytest.mark.parametrize("transactional_id", ["7", "a:b", ":1:2:", "größe\n"])
async def test_the_text_identifies_the_transactional_id(cluster: EmbeddedCluster, transactional_id: str) -> None:
    async with two_phase(cluster, transactional_id=transactional_id) as producer:
        stored = await prepared(producer, 1)
    with pytest.raises(ConfigurationError, match="is of another producer"):
        two_phase(cluster, transactional_id="another", prepared_transaction=stored)
    async with two_phase(cluster, transactional_id=transactional_id, prepared_transaction=stored):
        assert await committed_values(cluster) == [1]


async def test_a_transaction_that_was_not_decided_is_aborted_at_the_next_start(cluster: EmbeddedCluster) -> None:
    async with two_phase(cluster) as producer:
        stored = await prepared(producer, 1)
        await producer.commit_transaction()
        await prepared(producer, 2)  # the other system has not stored this text
    async with two_phase(cluster, prepared_transaction=stored):
        assert await committed_values(cluster) == [1]


async def test_a_producer_commits_and_aborts_what_it_has_prepared(cluster: EmbeddedCluster) -> None:
    async with two_phase(cluster) as producer:
        for number in range(4):
            await prepared(producer, number)
            assert metrics_of(producer).state == "PREPARED"
            if number % 2:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
        async with producer.transaction() as transaction:
            await transaction.send("t", b"4", partition=0)
            await producer.prepare_transaction()
        assert await committed_values(cluster) == [1, 3, 4]


async def test_a_prepared_transaction_takes_no_records_and_no_other_one_begins(cluster: EmbeddedCluster) -> None:
    async with two_phase(cluster) as producer:
        await prepared(producer, 1)
        with pytest.raises(IllegalStateError, match="the transaction is prepared"):
            await producer.send("t", b"2", partition=0)
        with pytest.raises(IllegalStateError, match="the transaction is prepared"):
            await producer.send_offsets_to_transaction({HERE: 1}, GROUP)
        for call in (producer.begin_transaction, producer.prepare_transaction, producer.detach_transaction):
            with pytest.raises(IllegalStateError, match="the transaction is prepared"):
                await call()
        await producer.commit_transaction()
        assert await committed_values(cluster) == [1]


@pytest.mark.parametrize("error", [ValueError("the database refuses"), asyncio.CancelledError()])
async def test_an_exception_after_the_preparation_does_not_abort(
    cluster: EmbeddedCluster, error: BaseException
) -> None:
    async with two_phase(cluster) as producer:
        with pytest.raises(type(error)):
            async with producer.transaction() as transaction:
                await transaction.send("t", b"1", partition=0)
                stored = await producer.prepare_transaction()
                raise error
    async with two_phase(cluster, prepared_transaction=stored):
        assert await committed_values(cluster) == [1]


async def test_no_timeout_aborts_the_transaction(cluster: EmbeddedCluster) -> None:
    async with two_phase(cluster, transaction_timeout=1.0) as producer:
        await prepared(producer, 1)
        await asyncio.sleep(120)  # the coordinator looks every 10 seconds
        await producer.commit_transaction()
    assert await committed_values(cluster) == [1]


async def test_a_transaction_without_records_has_an_empty_text(cluster: EmbeddedCluster) -> None:
    async with two_phase(cluster) as producer:
        await producer.begin_transaction()
        stored = await producer.prepare_transaction()
        assert stored == ""
        await producer.commit_transaction()
    async with two_phase(cluster, prepared_transaction=stored) as producer:
        assert await prepared(producer, 1)
        await producer.commit_transaction()
    assert await committed_values(cluster) == [1]


async def test_an_aborted_transaction_that_is_recorded_as_prepared_is_an_error(cluster: EmbeddedCluster) -> None:
    async with two_phase(cluster) as producer:
        stored = await prepared(producer, 1)
        await producer.abort_transaction()
    with pytest.raises(TransactionAborted, match="cannot be committed: it was aborted"):
        await two_phase(cluster, prepared_transaction=stored).start()
    async with two_phase(cluster) as producer:
        await prepared(producer, 2)
        await producer.commit_transaction()
    assert await committed_values(cluster) == [2]


async def test_an_administrator_ends_a_prepared_transaction_by_force(cluster: EmbeddedCluster) -> None:
    async with two_phase(cluster) as producer, Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin:
        await prepared(producer, 1)
        (await admin.transactions.fence_producers("orders-1")).raise_for_errors()
        with pytest.raises(ProducerFenced):
            await producer.commit_transaction()
    assert await committed_values(cluster) == []


async def test_an_error_of_two_phase_commit_names_no_timeout(cluster: EmbeddedCluster) -> None:
    async with two_phase(cluster) as producer:
        stored = await prepared(producer, 1)
        with cluster.on(EndTxnRequest).fail(ErrorCode.INVALID_TXN_STATE), pytest.raises(BrokerError) as caught:
            await producer.commit_transaction()
        assert "it was aborted by abort_transaction, by an administrator, or by a start without" in str(caught.value)
        assert "transaction_timeout" not in str(caught.value)
    with cluster.on(EndTxnRequest).fail(ErrorCode.INVALID_TXN_STATE), pytest.raises(TransactionAborted) as refused:
        await two_phase(cluster, prepared_transaction=stored).start()
    assert "by an administrator, or by a start without" in str(refused.value.__cause__)
    async with two_phase(cluster) as producer:
        await producer.begin_transaction()
        for request in (ProduceRequest, TxnOffsetCommitRequest):
            with cluster.on(request).fail(ErrorCode.INVALID_PRODUCER_EPOCH), pytest.raises(KafkaError) as caught:
                if request is ProduceRequest:
                    await producer.send("t", b"2", partition=0)
                else:
                    await producer.send_offsets_to_transaction({HERE: 1}, GROUP)
            assert "or an administrator has aborted the transaction" in str(caught.value)
            assert "transaction_timeout" not in str(caught.value)
            await producer.abort_transaction()
            await producer.begin_transaction()


async def test_the_commit_of_a_restart_goes_on_after_a_lost_answer(cluster: EmbeddedCluster) -> None:
    async with two_phase(cluster) as producer:
        stored = await prepared(producer, 1)
    with cluster.on(EndTxnRequest, times=2).apply_then_disconnect() as lost:
        async with two_phase(cluster, prepared_transaction=stored):
            assert lost.hits == 2
    assert await committed_values(cluster) == [1]


def refused_after_it_was_applied(answer: EndTxnResponse) -> EndTxnResponse:
    return dataclasses.replace(answer, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)


async def test_the_commit_of_a_restart_may_take_the_whole_timeout_of_the_start(cluster: EmbeddedCluster) -> None:
    async with two_phase(cluster) as producer:
        stored = await prepared(producer, 1)
    settings = {"prepared_transaction": stored, "api_timeout": 5.0, "request_timeout": 5.0}
    with cluster.on(EndTxnRequest, times=None).fail(ErrorCode.COORDINATOR_NOT_AVAILABLE) as unavailable:
        with pytest.raises(KafkaTimeout, match=r"not known after 5 s; the last error .*COORDINATOR_NOT_AVAILABLE"):
            await two_phase(cluster, **settings).start()
        asyncio.get_running_loop().call_later(20.0, unavailable.remove)
        producer = two_phase(cluster, **settings)
        await producer.start(timeout=60.0)
    await producer.close()
    assert await committed_values(cluster) == [1]


@pytest.mark.parametrize("is_applied", [False, True])
async def test_a_commit_that_is_answered_with_an_error_can_be_repeated(
    cluster: EmbeddedCluster, is_applied: bool
) -> None:
    async with two_phase(cluster) as producer:
        await prepared(producer, 1)
        fault = cluster.on(EndTxnRequest, times=2)
        if is_applied:
            fault.alter(refused_after_it_was_applied)
        else:
            fault.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
        for _ in range(2):
            with pytest.raises(BrokerError, match="UNKNOWN_SERVER_ERROR"):
                await producer.commit_transaction()
            assert metrics_of(producer).state == "PREPARED"
            with pytest.raises(IllegalStateError, match="the transaction is prepared"):
                await producer.begin_transaction()
        await producer.commit_transaction()
        async with producer.transaction() as transaction:
            await transaction.send("t", b"2", partition=0)
    assert await committed_values(cluster) == [1, 2]


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_commit_that_fails_after_its_caller_has_left_can_be_repeated(
    cluster: EmbeddedCluster, is_cancelled: bool
) -> None:
    async with two_phase(cluster) as producer:
        await prepared(producer, 1)
        with cluster.on(EndTxnRequest).delay(5.0).fail(ErrorCode.UNKNOWN_SERVER_ERROR):
            if is_cancelled:
                assert not await cancel_after(10, producer.commit_transaction())
            else:
                with pytest.raises(KafkaTimeout, match="the outcome of the commit is not known"):
                    await producer.commit_transaction(timeout=1.0)
            await until(lambda: metrics_of(producer).state == "PREPARED")
        await producer.commit_transaction()
    assert await committed_values(cluster) == [1]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_REQUEST])
async def test_a_commit_that_failed_is_left_to_the_next_start(cluster: EmbeddedCluster, code: ErrorCode) -> None:
    async with two_phase(cluster) as producer:
        with cluster.on(EndTxnRequest).fail(code), pytest.raises(BrokerError):
            async with producer.transaction() as transaction:
                await transaction.send("t", b"1", partition=0)
                stored = await producer.prepare_transaction()
        with pytest.raises(KafkaError):
            await producer.begin_transaction()
    async with two_phase(cluster, prepared_transaction=stored):
        assert await committed_values(cluster) == [1]


async def test_a_prepared_transaction_is_aborted_after_a_failed_commit_if_the_user_wants_it(
    cluster: EmbeddedCluster,
) -> None:
    async with two_phase(cluster) as producer:
        await prepared(producer, 1)
        with cluster.on(EndTxnRequest).fail(ErrorCode.UNKNOWN_SERVER_ERROR), pytest.raises(BrokerError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await prepared(producer, 2)
        await producer.commit_transaction()
    assert await committed_values(cluster) == [2]


async def test_a_transaction_whose_records_were_not_written_is_not_prepared(cluster: EmbeddedCluster) -> None:
    async with two_phase(cluster) as producer:
        await producer.begin_transaction()
        with cluster.on(ProduceRequest, times=None).drop():
            producer.send_nowait("t", b"1", partition=0)
            with pytest.raises(KafkaTimeout):
                await producer.prepare_transaction(timeout=1.0)
        await producer.abort_transaction()
        assert await prepared(producer, 2)
        await producer.commit_transaction()
    assert await committed_values(cluster) == [2]


async def test_a_preparation_that_is_cancelled_leaves_a_transaction_that_can_be_aborted(
    cluster: EmbeddedCluster,
) -> None:
    async with two_phase(cluster) as producer:

        async def begin() -> None:
            if metrics_of(producer).state != "READY":
                await producer.abort_transaction()
            await producer.begin_transaction()
            producer.send_nowait("t", b"1", partition=0)

        await at_every_turn(producer.prepare_transaction, begin)
        assert metrics_of(producer).state == "PREPARED"
        await producer.commit_transaction()
    assert await committed_values(cluster) == [1]


async def test_a_start_that_is_cancelled_does_not_abort_what_was_decided(cluster: EmbeddedCluster) -> None:
    async with two_phase(cluster) as producer:
        stored = await prepared(producer, 1)

    async def start() -> None:
        async with two_phase(cluster, prepared_transaction=stored):
            pass

    await at_every_turn(start)
    assert await committed_values(cluster) == [1]


async def test_a_broker_that_does_not_offer_two_phase_commit_is_named() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        with pytest.raises(UnsupportedVersion, match=r"broker 1 .*unstable\.api\.versions\.enable=true"):
            await two_phase(cluster).start()


async def test_the_protocol_of_older_transactions_is_not_enough(cluster: EmbeddedCluster) -> None:
    cluster.set_feature("transaction.version", 1)
    with pytest.raises(UnsupportedVersion, match=r"requires transaction\.version=2"):
        await two_phase(cluster).start()


async def test_a_coordinator_that_refuses_says_what_is_missing(cluster: EmbeddedCluster) -> None:
    cluster.on(InitProducerIdRequest).fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError, match=r"transaction\.two\.phase\.commit\.enable=true.*TWO_PHASE_COMMIT"):
        await two_phase(cluster).start()


async def test_the_user_needs_an_acl_for_writing_and_one_for_two_phase_commit() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, super_users=["User:admin"], configs=ALLOWED) as cluster:
        acls = cluster.authorizer.acls
        assert acls is not None

        def grant(*operations: AclOperation) -> None:
            acls.delete(acls.find(AclFilter()))
            for operation in operations:
                acls.create(AclBinding(AclResourceType.TRANSACTIONAL_ID, "orders-1", "User:ANONYMOUS", operation))

        for one in ([AclOperation.WRITE], [AclOperation.TWO_PHASE_COMMIT, AclOperation.DESCRIBE]):
            grant(*one)
            with pytest.raises(AuthorizationError, match="grant WRITE and TWO_PHASE_COMMIT"):
                await two_phase(cluster).start()
        grant(AclOperation.WRITE, AclOperation.TWO_PHASE_COMMIT)
        async with two_phase(cluster):
            pass


async def test_the_broker_refuses_to_keep_a_transaction_as_kafka_does(cluster: EmbeddedCluster) -> None:
    config = ClientConfig(bootstrap_servers=cluster.bootstrap_servers)
    async with Client(config, connector=cluster.connector) as client:
        coordinator = await client.coordinator("orders-1", CoordinatorKind.TRANSACTION)
        for fields, code in (
            ({"enable2_pc": True, "keep_prepared_txn": True}, ErrorCode.UNSUPPORTED_VERSION),
            ({"transaction_timeout_ms": 2**31 - 1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
            ({"enable2_pc": True}, ErrorCode.NONE),
        ):
            request = InitProducerIdRequest(**{"transactional_id": "orders-1", "transaction_timeout_ms": 0, **fields})
            assert (await coordinator.send(request)).error_code == code


async def test_only_a_producer_of_two_phase_commit_prepares(cluster: EmbeddedCluster) -> None:
    async with transactional(cluster) as producer, producer.transaction():
        with pytest.raises(IllegalStateError, match="requires Producer"):
            await producer.prepare_transaction()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"two_phase_commit": True}, "two_phase_commit=True requires transactional_id"),
        ({"transactional_id": "p", "two_phase_commit": 1}, "two_phase_commit must be True or False, got 1"),
        ({"transactional_id": "p", "prepared_transaction": "1:2:p"}, "requires two_phase_commit=True"),
        *(
            ({"transactional_id": "p", "two_phase_commit": True, "prepared_transaction": text}, message)
            for message, texts in (
                ("must be a result of prepare_transaction", ("p", "1:", "1:2", "1:2:", "1:x:p", b"1:2:p", 7)),
                ("must be a result of prepare_transaction", (f"{2**63}:1:p", f"1:{2**15}:p")),
                ("is of another producer: transactional_id is 'p'", ("1:2:q", "1:2:p\n", "1:2:p:q", "1:2: p")),
            )
            for text in texts
        ),
    ],
)
def test_wrong_settings_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Producer("127.0.0.1:1", **settings)
    with pytest.raises(ConfigurationError, match=message):
        blocking.Producer("127.0.0.1:1", **settings)
