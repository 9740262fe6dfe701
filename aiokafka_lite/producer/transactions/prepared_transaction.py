"""Prepared transactions of two-phase commit (KIP-939): their text, and their commit after a restart.

Another system, such as a database, decides about a transaction: it stores the text in its own transaction. After a
restart, the stored text says which transaction was decided to be committed. EndTxn with its producer id and epoch
commits it, and is answered in the same way if it was committed before. In generation 2, each transaction has its own
epoch, so EndTxn cannot commit another one. The text also has the transactional id, so that the settings refuse the text
of another producer: this producer would take it for a transaction that had ended, and abort its own.

KIP-939 also has a flag of InitProducerId that keeps the open transaction (``keep_prepared_txn``). Kafka 4.3 refuses it
with UNSUPPORTED_VERSION, and this order does not need it: commit the stored transaction first, then initialize, which
aborts any other.
"""

from __future__ import annotations

import logging
import math

from ...cluster.client import Client
from ...errors import BrokerError, ErrorCode, TransactionAborted
from ..outcome import FENCED
from ..producer_ids import ProducerIdAndEpoch
from .detached_transaction import DetachedTransaction, end_detached

logger = logging.getLogger(__name__)

_GENERATION = 2

_HAS_ENDED = (*FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
"""The coordinator has begun a later transaction, or has dropped the id, which it does not do while one is open."""


def prepared_text(transactional_id: str, identity: ProducerIdAndEpoch) -> str:
    """Return the text that is stored for the transaction of this producer id and epoch."""
    return f"{identity.producer_id}:{identity.epoch}:{transactional_id}"


async def commit_prepared(client: Client, transactional_id: str, text: str, timeout: float) -> None:
    """Commit the transaction with this text, unless it has ended already.

    Raises TransactionAborted if it was aborted, and KafkaTimeout after ``timeout`` seconds.
    """
    producer_id, epoch = map(int, text.split(":", 2)[:2])
    prepared = DetachedTransaction(transactional_id, producer_id, epoch, _GENERATION, transaction_timeout=math.inf)
    try:
        await end_detached(client, prepared, committed=True, timeout=timeout)
    except BrokerError as error:
        if error.code is ErrorCode.INVALID_TXN_STATE:
            raise TransactionAborted(
                f"prepared_transaction={text!r} of transactional_id {transactional_id!r} cannot be committed: it was"
                " aborted. To continue without its records, start the producer without prepared_transaction"
            ) from error
        if error.code not in _HAS_ENDED:
            raise
        logger.info("the prepared transaction %s of %r had ended before this start", text, transactional_id)
    else:
        logger.info("the prepared transaction %s of %r is committed", text, transactional_id)
