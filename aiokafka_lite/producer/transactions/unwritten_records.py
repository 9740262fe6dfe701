"""Fails the unwritten records of a transaction that will not be committed."""

from __future__ import annotations

import logging

from ...errors import TransactionAborted
from ..accumulator import Accumulator
from ..delivery import FailureLog
from ..sender import Senders
from ..settle import Settlement
from ..transactional_ids import TransactionalIds


class UnwrittenRecords:
    """Fails records of a transaction. The accumulator and the settlement own them."""

    def __init__(
        self, accumulator: Accumulator, settlement: Settlement, senders: Senders, ids: TransactionalIds
    ) -> None:
        self._accumulator = accumulator
        self._settlement = settlement
        self._senders = senders
        self._ids = ids

    def fail_unsent(self, error: Exception) -> None:
        """Fail the records that no request has carried yet."""
        log = _quiet_log(error)
        self._accumulator.fail_pending(error, log)
        self._settlement.fail_unsent(error, log)

    async def drop(self, cause: Exception | None) -> None:
        """Fail all records. In generation 1, wait for the answers to records in flight.

        Their error is the ``cause`` of the abort, or TransactionAborted.
        """
        if cause is None:
            cause = TransactionAborted("the record was not written: its transaction was aborted")
        log = _quiet_log(cause)
        self.fail_unsent(cause)
        # Rule 3 of ``transactions``. A batch that is to be retried is sent again at the earliest in a later iteration
        # of the loop.
        while self._ids.generation < 2 and await self._senders.wait_answered():
            self._settlement.fail_all(cause, log=log)
        self._settlement.fail_all(cause, log=log)


def _quiet_log(error: Exception) -> FailureLog:
    """Return the log for records that fail with their transaction, whose own error and log line report the failure."""
    return FailureLog(error, logging.DEBUG)
