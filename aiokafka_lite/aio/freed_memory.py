"""Makes the C library's memory allocator keep freed memory for the next large buffer."""

from __future__ import annotations

from functools import cache

KEPT = 8 * 1024 * 1024
"""The largest block that is kept, in bytes. Memory for a larger frame returns to the system afterwards."""


@cache
def keep_freed_memory() -> None:
    """Make the process keep up to ``2 * KEPT`` bytes of freed memory. Only the first call has an effect.

    glibc returns the memory of each large block to the system, and the next block costs a page fault for each 4 KiB.
    That is half of the CPU time of a consumer that reads values of 1 MB. But glibc keeps blocks up to the size of the
    largest mapped block that the process has freed (``M_MMAP_THRESHOLD`` of ``mallopt``). So this function allocates
    one block and frees it. Nothing is written to the block, so it takes no memory. Other allocators are not affected.
    """
    bytes(KEPT)
