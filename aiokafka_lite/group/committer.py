"""The identity under which a consumer commits and fetches offsets: of a member of the group, or of no member."""

from __future__ import annotations

from .consumer_member import ConsumerMember
from .events import NO_MEMBER, Identity
from .member import Member
from .states import MemberState


class Committer:
    """A consumer that commits for a group without being a member of it."""

    @property
    def identity(self) -> Identity | None:
        """The identity to commit under; None for a member that has no membership now."""
        return NO_MEMBER

    @property
    def fetching_identity(self) -> Identity | None:
        """The identity to fetch offsets under; None if the coordinator does not check it."""
        return None

    @property
    def is_rebalancing(self) -> bool:
        """Whether the identity is about to change, so that a refused commit says nothing about the membership."""
        return False

    @property
    def is_revoking(self) -> bool:
        """Whether the reader still releases partitions."""
        return False


class CurrentMember(Committer):
    """The member of a ``MemberRunner``, which alone replaces it.

    Only ``group_protocol="auto"`` replaces ``member``: once, before the first event.
    """

    def __init__(self, member: Member | ConsumerMember) -> None:
        self.member = member

    @property
    def identity(self) -> Identity | None:
        return self.member.identity if self.member.generation >= 0 else None

    @property
    def fetching_identity(self) -> Identity | None:
        # Only in the consumer protocol does the coordinator check the member that fetches offsets.
        return self.identity if self.member.protocol == "consumer" else None

    @property
    def is_rebalancing(self) -> bool:
        return self.member.state.is_rebalancing

    @property
    def is_revoking(self) -> bool:
        return self.member.state is MemberState.REVOKING
