"""The C library's memory allocator: have it keep freed memory for the next large buffer."""

from __future__ import annotations

from functools import cache

KEPT = 8 * 1024 * 1024
"""Bytes of the largest block that is kept. Larger frames are received in mapped memory, which nothing keeps."""


@cache
def keep_freed_memory() -> None:
    """Have the process keep up to ``2 * KEPT`` bytes of freed memory. Only the first call has an effect.

    glibc returns free memory to the system after each large block, and the next block costs a page fault for each
    4 KiB: half of the CPU of a consumer that reads values of 1 MB. It keeps blocks as large as the largest mapped block
    that the process has freed (``M_MMAP_THRESHOLD`` of ``mallopt``). So one block is allocated here and freed. Nothing
    is written to it, so it takes no memory. Other allocators are not affected.
    """
    bytes(KEPT)
