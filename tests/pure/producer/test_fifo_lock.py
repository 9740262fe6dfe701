"""The lock is granted in the order of the calls."""

from __future__ import annotations

from aiokafka_lite.aio.fifo_lock import FifoLock


async def test_turns_come_in_the_order_of_joining() -> None:
    lock = FifoLock()
    first, second, third, fourth = (lock.join("t") for _ in range(4))
    other = lock.join("u")
    assert first.done()
    assert other.done()
    lock.leave("t", third)
    assert not second.done()
    lock.leave("t", first)
    assert second.done()
    assert not fourth.done()
    lock.leave("t", second)
    assert fourth.done()
    lock.leave("t", fourth)
    lock.leave("u", other)
    assert len(lock) == 0
    assert lock.join("t").done()
