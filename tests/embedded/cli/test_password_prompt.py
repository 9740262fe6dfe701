"""The prompt for a password hides it, and a signal ends it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios

import pytest

from tests.waiting import DEADLINE


def shows_input(terminal: int) -> bool:
    return bool(termios.tcgetattr(terminal)[3] & termios.ECHO)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_prompt_and_the_terminal_shows_input_again(number: signal.Signals) -> None:
    outside, terminal = pty.openpty()
    command = [sys.executable, "-m", "aiokafka_lite", "users", "add", "alice"]
    with subprocess.Popen(command, stdin=terminal, stderr=terminal, start_new_session=True) as process:
        try:
            seen = b""
            while b"Password: " not in seen:
                seen += os.read(outside, 1000)
            assert not shows_input(terminal)
            process.send_signal(number)
            assert process.wait(DEADLINE) == 128 + number
            assert shows_input(terminal)
        finally:
            process.kill()
            os.close(outside)
            os.close(terminal)
