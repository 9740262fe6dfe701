"""The allocator keeps freed memory, so that the next large buffer costs no page faults."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
from aiokafka_lite.aio.freed_memory import keep_freed_memory
{call}
def use():
    return [bytes(bytearray(1_000_000)) for _ in range(3)]
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(call: str) -> int:
    """Return the page faults of a new process that makes 60 large buffers and their copies, after this call."""
    command = [sys.executable, "-c", PROGRAM.format(call=call)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator than glibc's")
def test_large_buffers_cost_no_page_faults_after_the_call() -> None:
    assert page_faults("keep_freed_memory()") <= 0.2 * page_faults("")
