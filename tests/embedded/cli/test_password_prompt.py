"""The password of ``users add``, from a prompt or from a pipe: a signal ends the wait for it."""

from __future__ import annotations

import fcntl
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


COMMAND = [sys.executable, "-m", "aiokafka_lite", "users", "add", "alice"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_for_a_pipe_that_stays_silent(number: signal.Signals) -> None:
    reading, writing = os.pipe()
    with (
        subprocess.Popen(COMMAND, stdin=reading, stderr=subprocess.PIPE) as process,
        os.fdopen(writing, "wb", 0) as pipe,
    ):
        try:
            pipe.write(b"half a line")
            while fcntl.ioctl(reading, termios.FIONREAD, b"1234") != bytes(4):
                assert process.poll() is None
                os.sched_yield()
            process.send_signal(number)
            _, errors = process.communicate(timeout=DEADLINE)
            assert (process.returncode, errors) == (128 + number, b"")
        finally:
            process.kill()
            os.close(reading)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "requires a password"),
        (b"\xff\n", "must be UTF-8"),
        (b"x" * (1 << 21), "must have at most"),
        (None, "requires a password"),
    ],
    ids=["empty", "binary", "huge", "closed"],
)
def test_wrong_input_is_one_line_of_error(data: bytes | None, problem: str) -> None:
    closed = ["sh", "-c", '"$@" <&-', "sh"] if data is None else []
    process = subprocess.run([*closed, *COMMAND], input=data, capture_output=True, check=False, timeout=DEADLINE)
    errors = process.stderr.decode()
    assert (process.returncode, errors.count("\n")) == (2, 1), errors
    assert problem in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_prompt_and_the_terminal_shows_input_again(number: signal.Signals) -> None:
    outside, terminal = pty.openpty()
    with subprocess.Popen(COMMAND, stdin=terminal, stderr=terminal, start_new_session=True) as process:
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
