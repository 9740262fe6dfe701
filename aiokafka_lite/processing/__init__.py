"""Handlers of records above the clients: ``Workers`` with its rules, and ``ExactlyOnce``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import lazy

if TYPE_CHECKING:
    from .batch_failure import BatchFailure as BatchFailure
    from .breaker import CircuitBreaker as CircuitBreaker
    from .exactly_once import ExactlyOnce as ExactlyOnce
    from .exactly_once_into import ExactlyOnceInto as ExactlyOnceInto
    from .redriving import Redriven as Redriven
    from .redriving import redrive as redrive
    from .rules import Rule as Rule
    from .rules import dead_letter as dead_letter
    from .rules import retry as retry
    from .rules import retry_topic as retry_topic
    from .rules import skip as skip
    from .rules import stop as stop
    from .workers import Workers as Workers
else:  # with a __getattr__, a type checker would accept every name
    __all__, __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            ".exactly_once": "ExactlyOnce",
            ".exactly_once_into": "ExactlyOnceInto",
            ".batch_failure": "BatchFailure",
            ".breaker": "CircuitBreaker",
            ".redriving": "Redriven redrive",
            ".rules": "Rule dead_letter retry retry_topic skip stop",
            ".workers": "Workers",
        },
    )
