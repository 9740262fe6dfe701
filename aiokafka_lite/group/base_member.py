"""The parts of a member that both protocols share: its identity, its state and its partitions. No I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from ..errors import KafkaError
from ..state_machine import Transitions, next_state
from .events import Action, Close, Event, Fail, Identity
from .leadership import Leadership
from .ownership import NO_GENERATION, Ownership
from .states import MemberEvent, MemberState


class BaseMember(ABC):
    """A state machine: ``handle(event)`` moves it and returns actions. Owner: the task of the ``MemberRunner``.

    ``Member`` is for the classic protocol, ``ConsumerMember`` for the consumer protocol.
    """

    protocol: ClassVar[str]
    """The name of the protocol, as in the setting ``group_protocol``."""
    transitions: ClassVar[Transitions[MemberState, MemberEvent]]

    def __init__(self, group_id: str, *, instance_id: str | None, rack: str | None, strategy: str = "") -> None:
        self.group_id = group_id
        self.instance_id = instance_id
        self.state: MemberState = MemberState.UNJOINED
        self.member_id: str = ""
        self.generation: int = NO_GENERATION
        """The generation of the group; under the consumer protocol the epoch of the member."""
        self.partitions: Ownership = Ownership()
        self.strategy: str = strategy
        """The name of the assignment strategy in use; empty if it is not known."""
        self.leadership: Leadership | None = None
        """Set while this member assigns the partitions of all members, which only the classic protocol has."""
        self.was_accepted: bool = False
        """Whether the coordinator has accepted this member once, so that its settings are right."""
        self._rack = rack
        self._topics: frozenset[str] = frozenset()  # the topics that the user subscribes to
        self._attempt = 0  # the attempt number of the request or pause whose outcome counts
        self._unknown_errors = 0
        self._closing = False
        # The member left because of max_poll_interval. Only Polled makes it join again. Otherwise it would join after
        # LEAVING, or for a new matching topic, although the user still does not read.
        self._overdue = False

    def __repr__(self) -> str:
        static = "" if self.instance_id is None else f" instance={self.instance_id}"
        return (
            f"<{type(self).__name__} {self.member_id or '-'}{static} of {self.group_id} {self.state.name} "
            f"generation={self.generation} owned={len(self.partitions.owned)}>"
        )

    @property
    def identity(self) -> Identity:
        return Identity(self.member_id, self.generation, self.instance_id)

    @property
    def is_gone(self) -> bool:
        """Whether the member is closed and has nothing left to do."""
        return self._closing and self.state in (MemberState.UNJOINED, MemberState.FATAL)

    @abstractmethod
    def handle(self, event: Event) -> list[Action]:
        """Handle an event, and return the actions in their order. A FATAL member returns none."""

    def _ignore(self, event: Event) -> list[Action]:
        """Handle an event in FATAL. Close still counts, because ``close()`` waits until ``is_gone`` is true."""
        self._closing |= isinstance(event, Close)
        return []

    @abstractmethod
    def _send_leave(self) -> list[Action]:
        """Leave the group. All partitions are released."""

    def _advance(self, event: MemberEvent) -> None:
        self.state = next_state(self.transitions, self.state, event)
        if self.state in (MemberState.UNJOINED, MemberState.FENCED, MemberState.FATAL):
            assert not self.partitions.owned, "in UNJOINED, FENCED and FATAL the member owns nothing"

    def _fail(self, error: KafkaError) -> list[Action]:
        # The loss comes before the error, because the reader must stop before the user gets the error.
        lose = self.partitions.lose()
        self._advance(MemberEvent.FAIL)
        return [lose, Fail(error)] if lose.partitions else [Fail(error)]

    def _release_and_leave(self, *, in_good_order: bool) -> list[Action]:
        """Release all partitions, then leave. With ``in_good_order``, the reader commits first."""
        was_fenced = self.state is MemberState.FENCED
        self._advance(MemberEvent.LEAVE)
        self._attempt += 1  # a late answer must not assign partitions to a member that leaves
        if was_fenced:
            return []  # the reader still handles the loss; the leave continues with the event ``Released``
        revoke = self.partitions.revoke_all() if in_good_order else None
        if revoke is not None:
            return [revoke]
        # The user does not read, so the revocation does not wait for the user, and the other members may continue at
        # once.
        lose = self.partitions.lose(awaits_release=False)
        return [*([lose] if lose.partitions else []), *self._send_leave()]
