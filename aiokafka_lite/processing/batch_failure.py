"""``BatchFailure``: how a batch handler of ``Workers`` names the record that failed."""

from __future__ import annotations

from typing import Any

from ..arguments import must_be, whole
from .other_process import picklable


class BatchFailure(Exception):
    """Raise it in a batch handler: the records before ``index`` are done, and the record at ``index`` failed.

    The rules of ``Workers`` decide about that record by ``error``. The records behind it are processed in a later
    batch. ``index`` counts from 0. Raises TypeError or ValueError for a wrong index, or an error that is no exception.
    """

    def __init__(self, index: int, error: Exception) -> None:
        self.index: int = whole("index", index)
        if not isinstance(error, Exception):
            raise TypeError(must_be("error", "an exception", error))
        self.error: Exception = error
        super().__init__(f"record {index} of the batch failed: {error!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        # An error that cannot be pickled must not take the index with it: the records before it are done.
        return BatchFailure, (self.index, picklable(self.error))
