"""Handlers of records above the clients: ``Workers``, ``FailureTopics`` and ``ExactlyOnce``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import lazy

if TYPE_CHECKING:
    from .exactly_once import ExactlyOnce as ExactlyOnce
    from .failure_topics import FailureTopics as FailureTopics
    from .workers import Workers as Workers
else:  # with a __getattr__, a type checker would accept every name
    __all__, __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            ".exactly_once": "ExactlyOnce",
            ".failure_topics": "FailureTopics",
            ".workers": "Workers",
        },
    )
