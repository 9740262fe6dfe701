"""Whether a producer accepts records now, and in which transaction. Pure."""

from __future__ import annotations

from ..errors import IllegalStateError, KafkaError


class Admission:
    """The admission of new records. Its methods are the only writers of the attributes.

    - ``refusal``: the error that refuses new records; None while they are accepted. With transactions, it says why
      none is open.
    - ``deferred``: the refusal, if the commit raises it and no send does; otherwise None.
    - ``transaction``: the number of the present or last transaction; 0 without transactions.
    """

    __slots__ = ("_has_ended", "deferred", "refusal", "transaction")

    def __init__(self) -> None:
        self.refusal: KafkaError | None = None
        self.deferred: KafkaError | None = None
        self.transaction: int = 0
        self._has_ended = False

    def follow(self, transaction: int, refusal: KafkaError | None, *, is_deferred: bool = False) -> None:
        """Apply the state of the transactions, unless the producer has ended."""
        assert transaction >= self.transaction, "the numbers of transactions only grow"
        self.transaction = transaction
        if not self._has_ended:
            self.refusal, self.deferred = refusal, refusal if is_deferred else None

    def end(self, error: Exception) -> None:
        """Refuse all records from now on, because the producer ends with this error.

        A callback of a failing record may send again, and nothing would settle the new record. The state of the service
        does not refuse it yet if its failure comes from the task that fails the records.
        """
        self._has_ended = True
        if isinstance(error, KafkaError):
            self.refusal = error
        else:
            self.refusal = IllegalStateError(f"the producer has failed: {error!r}")
        self.deferred = None

    def check(self) -> None:
        """Raise the refusal, if there is one."""
        if self.refusal is not None:
            # The same object is raised for each record. Without this, its traceback would grow with each raise.
            raise self.refusal.with_traceback(None)

    def check_transaction(self, number: int) -> None:
        """Raise unless the transaction with this number is open, for a call that has waited."""
        self.check()
        if number != self.transaction:
            raise IllegalStateError(
                "the record was not accepted: its transaction ended while the call waited; await each send before the"
                " transaction ends"
            )
