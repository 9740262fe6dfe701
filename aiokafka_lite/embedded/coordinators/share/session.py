"""Share sessions (KIP-932): a member names its partitions to a leader once, and then only the changes.

A request with epoch 0 opens the session of its member. Each following request adds one to the epoch. Epoch -1 closes
the session and releases the records that the member has. The end of the connection closes it too. Acknowledgements need
a session.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from ....arguments import INT32_MAX
from ....errors import ErrorCode
from ..groups.assignors import TopicIdPartition

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
LAST_EPOCH = INT32_MAX
MOST_PARTITIONS = 200_000
"""The limit on partitions in all sessions of a node. Without it, a client could fill the memory request by request."""

SessionKey = tuple[str, str]
"""Group and member."""


class SessionRefused(Exception):
    """A request does not fit the session; ``code`` is Kafka's error code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.description)
        self.code = code


class ShareSession:
    """The partitions of a member at one leader. Owner: the node's ShareSessions.

    ``ShareSession`` of ``share`` is the client's copy.
    """

    def __init__(self, connection_id: int) -> None:
        self.connection_id = connection_id
        self.epoch = 1
        self.partitions: dict[TopicIdPartition, None] = {}
        self.unanswered: set[TopicIdPartition] = set()
        """Partitions that a later request added, until a response has them."""

    def move_to_end(self, key: TopicIdPartition) -> None:
        """Move a partition to the end of the order, because the member got records of it."""
        if key in self.partitions:
            del self.partitions[key]
            self.partitions[key] = None


class ShareSessions:
    """The share sessions of a node. Owner: the node."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, key: SessionKey, connection_id: int) -> ShareSession:
        """Open a session in place of the member's old one. Raises SessionRefused if there are too many."""
        self._sessions.pop(key, None)
        if len(self._sessions) >= self._slots:
            raise SessionRefused(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[key] = ShareSession(connection_id)
        return session

    def resume(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return the session of a request, at its next epoch. The final epoch ends it. Raises SessionRefused."""
        session = self._sessions.get(key)
        if session is None:
            raise SessionRefused(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch == FINAL_EPOCH:
            del self._sessions[key]
        elif epoch != session.epoch:
            raise SessionRefused(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        else:
            # Epoch 0 would open another session, so the epoch wraps to 1.
            session.epoch = 1 if epoch == LAST_EPOCH else epoch + 1
            assert session.epoch != INITIAL_EPOCH, "only a request that opens a session has epoch 0"
        return session

    def update(
        self, session: ShareSession, added: Collection[TopicIdPartition], forgotten: Iterable[TopicIdPartition]
    ) -> None:
        """Add and drop partitions. Raises SessionRefused if the sessions of the node would have too many."""
        if added:
            total = len(added) + sum(len(open_session.partitions) for open_session in self._sessions.values())
            if total > MOST_PARTITIONS:
                raise SessionRefused(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        if session.epoch != 1:
            session.unanswered.update(key for key in added if key not in session.partitions)
        session.partitions.update(dict.fromkeys(added))
        for key in forgotten:
            session.partitions.pop(key, None)
            session.unanswered.discard(key)

    def of_connection(self, connection_id: int) -> Iterator[tuple[SessionKey, ShareSession]]:
        """Remove the sessions of a connection that has ended, and yield them."""
        for key in [key for key, session in self._sessions.items() if session.connection_id == connection_id]:
            yield key, self._sessions.pop(key)

    def clear(self) -> None:
        self._sessions.clear()
