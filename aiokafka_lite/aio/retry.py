"""The rules of retries: which errors are retriable, and how long to wait before the next attempt.

All components follow these rules. A component that needs an exception states it where it classifies the answer: for
example, a fetch is retried after UNKNOWN_SERVER_ERROR, as in Java's consumer.
"""

from __future__ import annotations

import logging
import math
import random as _random
from collections.abc import Callable

from ..arguments import must_be
from ..errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ConnectionLost,
    ErrorCode,
    KafkaTimeout,
    ProtocolError,
)
from ..settings.checks import SHORTEST_PAUSE
from .callbacks import in_copy

logger = logging.getLogger(__name__)

_MAX_DOUBLINGS = 64
"""The maximum number of doublings. They bring any initial value above any maximum. More would overflow a float."""


def is_retriable(error: BaseException) -> bool:
    """Return whether the same request may succeed later, on a new connection or at another broker.

    Lost connections and timeouts are retriable. A ProtocolError is retriable too: the connection is closed, and the
    next one may reach a healthy peer. A broker's error is retriable if Kafka marks its code as retriable
    (https://kafka.apache.org/protocol). BROKER_NOT_AVAILABLE is retriable, because the client raises it for a broker
    that has just left the cluster. A refusal, a missing version and wrong arguments are not retriable.
    """
    if isinstance(error, BrokerError):
        return error.code.retriable or error.code is ErrorCode.BROKER_NOT_AVAILABLE
    return isinstance(error, ConnectionLost | KafkaTimeout | ProtocolError)


def is_retriable_in_failover(error: BaseException) -> bool:
    """Return whether the error is retriable, or UNKNOWN_SERVER_ERROR, which brokers return during a failover.

    Java's client raises it from ``poll()`` and stays usable. In a member of a group, it would end the consumer, and
    cause a rebalance.
    """
    return is_retriable(error) or (isinstance(error, BrokerError) and error.code is ErrorCode.UNKNOWN_SERVER_ERROR)


def is_refusal(error: BaseException) -> bool:
    """Return whether the peer refuses this client: its login, its certificate, or a permission.

    The call that waits raises a refusal at once, because nobody knows how long it lasts. But it may pass without this
    client: brokers that start do not know the ACLs yet, a provider limits the rate of logins, a certificate is being
    replaced. So a refusal ends no client that has started.
    """
    return isinstance(error, AuthenticationError | AuthorizationError)


def is_momentary(error: BaseException) -> bool:
    """Return whether a client that has started continues after this error, and tries again later.

    These are the retriable errors, refusals, and UNKNOWN_SERVER_ERROR, which brokers return during a failover.
    """
    return is_retriable_in_failover(error) or is_refusal(error)


class Backoff:
    """Exponential backoff with jitter, in seconds.

    Each ``next()`` is twice the previous one and never above ``maximum``. A random share of up to ``jitter`` is
    subtracted, so that clients that failed together do not retry together. ``random`` returns numbers in [0, 1).
    Use ``after(failures)`` to share one Backoff between callers that count their attempts themselves.

    ``function`` is the user's ``retry_backoff_function``: it gets the number of failures, from 1 on, and returns the
    seconds to wait. It replaces doubling and jitter, within SHORTEST_PAUSE and ``at_most``. If it fails, the
    exponential pause is used, and one warning is logged.
    """

    __slots__ = ("_at_most", "_failures", "_function", "_initial", "_jitter", "_maximum", "_random")

    def __init__(
        self,
        initial: float,
        maximum: float,
        jitter: float = 0.2,
        random: Callable[[], float] = _random.random,
        *,
        function: Callable[[int], float] | None = None,
        at_most: float = math.inf,
    ) -> None:
        self._function = function
        self._at_most = at_most
        self._initial = min(initial, maximum)
        self._maximum = maximum
        self._jitter = jitter
        self._random = random
        self._failures = 0

    def next(self) -> float:
        """Count a failure and return the seconds to wait before the next attempt."""
        self._failures += 1
        return self.after(self._failures - 1)

    def after(self, failures: int) -> float:
        """Return the pause in seconds after ``failures + 1`` failures in a row. ``next`` does not count this call."""
        if self._function is not None:
            pause = self._own(self._function, failures + 1)
            if pause is not None:
                return min(max(pause, SHORTEST_PAUSE), self._at_most)
        return self._step(failures) * (1 - self._jitter * self._random())

    def reset(self) -> None:
        """Start again at ``initial``, after an attempt that succeeded."""
        self._failures = 0

    def _own(self, function: Callable[[int], float], failures: int) -> float | None:
        try:
            pause = in_copy(function, failures)
            if isinstance(pause, int | float) and 0 <= pause < math.inf:
                return float(pause)
            problem = must_be("the result of retry_backoff_function", "a number of seconds >= 0", pause)
        except Exception as error:  # noqa: BLE001 - a user's function must not end the client
            problem = f"retry_backoff_function({failures}) raised {error!r}"
        self._function = None
        logger.warning("%s; retry_backoff is used instead", problem)
        return None

    def _step(self, failures: int) -> float:
        return min(self._maximum, self._initial * 2.0 ** min(failures, _MAX_DOUBLINGS))

    def __repr__(self) -> str:
        return f"<Backoff next={self._step(self._failures):.3f}s maximum={self._maximum:.3f}s>"
