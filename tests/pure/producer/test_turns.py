"""Lines of callers."""

from __future__ import annotations

from aiokafka_lite.producer.turns import Turns


async def test_turns_come_in_the_order_of_joining_whoever_leaves() -> None:
    turns = Turns()
    first, second, third, fourth = (turns.join("t") for _ in range(4))
    other = turns.join("u")
    assert first.done()
    assert other.done()
    turns.leave("t", third)
    assert not second.done()
    turns.leave("t", first)
    assert second.done()
    assert not fourth.done()
    turns.leave("t", second)
    assert fourth.done()
    turns.leave("t", fourth)
    turns.leave("u", other)
    assert len(turns) == 0
    assert turns.join("t").done()
