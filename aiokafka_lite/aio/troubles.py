"""What goes wrong and is tried again: counted by place, told once when it begins and once when it is over.

An outage of ten minutes is thousands of failures and one piece of news. Whoever meets a failure notes it here and logs
what ``failed`` says is new; whoever succeeds asks ``over`` whether anything has ended by that. What was counted stays,
for a bug report.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NamedTuple

MOST_PLACES = 100
"""Places that are remembered; the one that has been well for longest is forgotten first."""


class Spell(NamedTuple):
    """A trouble that is over: how many failures it had, and how many seconds it lasted."""

    failures: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.failures} failure{'s' if self.failures > 1 else ''} in {self.seconds:.1f} s"


@dataclass(slots=True)
class Trouble:
    """All that went wrong in one place. Times are the loop's; ``began`` is None while all is well."""

    place: str
    error: str
    count: int
    first: float
    last: float
    began: float | None
    count_before: int = 0
    """``count`` when the present spell began."""


class Troubles:
    """The troubles of one client. Owned by it; all calls are made on its loop, and cost a dictionary's lookup."""

    def __init__(self) -> None:
        self._by_place: dict[str, Trouble] = {}  # the latest failure last
        self._ongoing: set[str] = set()

    def __bool__(self) -> bool:
        """Whether anything is wrong now: what spares the hot path a call of ``over``."""
        return bool(self._ongoing)

    def failed(self, place: str, error: BaseException) -> bool:
        """Note a failure; whether it is news, as all was well there before."""
        now = asyncio.get_running_loop().time()
        trouble = self._by_place.pop(place, None)
        if trouble is None:
            trouble = Trouble(place, "", 0, now, now, None)
            self._make_room()
        self._by_place[place] = trouble
        is_news = trouble.began is None
        if is_news:
            trouble.began, trouble.count_before = now, trouble.count
            self._ongoing.add(place)
        trouble.count += 1
        trouble.last = now
        trouble.error = f"{type(error).__name__}: {error}"
        return is_news

    def over(self, place: str) -> Spell | None:
        """All is well there; what has ended by that, if anything had been wrong."""
        if place not in self._ongoing:
            return None
        self._ongoing.remove(place)
        trouble = self._by_place[place]
        assert trouble.began is not None
        spell = Spell(trouble.count - trouble.count_before, asyncio.get_running_loop().time() - trouble.began)
        trouble.began = None
        return spell

    def forget(self, place: str) -> None:
        """The place is no more: what was wrong there neither lasts nor is it over."""
        self._ongoing.discard(place)
        trouble = self._by_place.get(place)
        if trouble is not None:
            trouble.began = None

    def all(self) -> list[Trouble]:
        """The latest first."""
        return list(reversed(self._by_place.values()))

    def _make_room(self) -> None:
        if len(self._by_place) < MOST_PLACES:
            return
        place = next((place for place in self._by_place if place not in self._ongoing), next(iter(self._by_place)))
        self._ongoing.discard(place)
        del self._by_place[place]
