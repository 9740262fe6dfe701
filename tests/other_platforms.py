"""Makes this interpreter behave as on Windows or macOS, as far as Python code can: ``install("windows")``.

For subprocesses of tests, before they import the package. What stays different: the event loop is a selector loop, the
file system is that of Linux, and ``os.name`` is "posix".
"""

from __future__ import annotations

import asyncio
import errno
import importlib
import importlib.abc
import os
import select
import selectors
import signal
import socket
import stat
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

MISSING_ON_WINDOWS = ("fcntl", "termios", "resource", "tty", "pty", "grp", "pwd")
_FUNCTIONS = ("fork", "forkpty", "register_at_fork", "getuid", "geteuid", "pread", "pwrite", "fchmod", "uname")
_LOOP_METHODS = ("add_reader", "remove_reader", "add_signal_handler")

BINARY = 1 << 30
"""``os.O_BINARY`` of this Windows. A file that is opened without it would get other line ends."""


def install(platform: str) -> None:
    """Change the interpreter. Raises KeyError for another platform than "windows" and "macos"."""
    sysconfig.get_config_vars()  # a file of this platform
    {"windows": _windows, "macos": _macos}[platform]()


def _windows() -> None:
    import fcntl

    # What the standard library and others import now, they import as on Linux.
    for name in ("anyio._backends._asyncio", "ssl", "subprocess", "tempfile", "uuid", "rich.console", "rich.progress"):
        importlib.import_module(name)
    importlib.import_module("typer.main")
    sys.modules["msvcrt"] = _msvcrt(fcntl)
    for name in MISSING_ON_WINDOWS:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Missing())
    for name in _FUNCTIONS:
        if hasattr(os, name):
            delattr(os, name)
    for name in ("epoll", "poll"):
        delattr(select, name)
    del socket.SO_REUSEPORT
    for name in ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGKILL", "SIGALRM", "SIGPIPE", "SIGCHLD"):
        delattr(signal, name)
    for name in _LOOP_METHODS:
        setattr(asyncio.SelectorEventLoop, name, _not_implemented)
    asyncio.SelectorEventLoop.remove_signal_handler = _not_implemented  # type: ignore[method-assign,assignment]
    _refuse_open_files()
    sys.platform = "win32"


class _Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, *_: object) -> None:
        if name in MISSING_ON_WINDOWS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _not_implemented(*_: object) -> NoReturn:
    raise NotImplementedError


def _msvcrt(fcntl: Any) -> ModuleType:
    module: Any = ModuleType("msvcrt")
    module.LK_UNLCK, module.LK_LOCK, module.LK_NBLCK = 0, 1, 2

    def locking(descriptor: int, mode: int, size: int) -> None:
        kind = {0: fcntl.LOCK_UN, 1: fcntl.LOCK_EX, 2: fcntl.LOCK_EX | fcntl.LOCK_NB}[mode]
        try:
            fcntl.flock(descriptor, kind)
        except BlockingIOError as error:
            raise PermissionError(errno.EACCES, "Permission denied") from error

    module.locking = locking
    return module  # type: ignore[no-any-return]


def _open_paths() -> set[str]:
    paths = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            paths.add(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return paths


def _refuse_open_files() -> None:
    """Refuse to delete and rename open files and their directories, and to open a directory or a file as text."""

    def check(path: Any) -> None:
        text = os.path.realpath(path)
        for name in _open_paths():
            if name == text or name.startswith(text + os.sep):
                raise PermissionError(errno.EACCES, "The process cannot access the file: it is being used", str(path))

    def guarded(function: Any) -> Any:
        def run(*paths: Any, **settings: Any) -> Any:
            for path in paths:
                if isinstance(path, str | os.PathLike):
                    check(path)
            return function(*paths, **settings)

        return run

    for name in ("rename", "replace", "unlink", "remove", "rmdir"):
        setattr(os, name, guarded(getattr(os, name)))
    system_open = os.open
    os.O_BINARY = BINARY  # type: ignore[attr-defined,misc,unused-ignore]

    def open_file(path: Any, flags: int, mode: int = 0o777, **settings: Any) -> int:
        if Path(path).is_dir() and not settings:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        assert flags & BINARY or not str(path).endswith((".log", ".compacted")), f"{path} is opened as text"
        return system_open(path, flags & ~BINARY, mode, **settings)

    os.open = open_file


def _macos() -> None:
    for name in ("epoll", "EPOLLIN"):
        delattr(select, name)
    for name in ("SO_REUSEPORT", "MSG_NOSIGNAL"):
        if hasattr(socket, name):
            delattr(socket, name)
    selectors.DefaultSelector = _Kqueue  # type: ignore[misc,assignment]
    sys.platform = "darwin"


class _Kqueue(selectors.SelectSelector):
    """kqueue: a regular file is not readable at its end, and some devices are refused."""

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        mode = os.fstat(fileobj if isinstance(fileobj, int) else fileobj.fileno()).st_mode
        if stat.S_ISCHR(mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        return super().register(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        def is_at_end(descriptor: int) -> bool:
            state = os.fstat(descriptor)
            return stat.S_ISREG(state.st_mode) and os.lseek(descriptor, 0, os.SEEK_CUR) >= state.st_size

        return [(key, events) for key, events in super().select(timeout) if not is_at_end(key.fd)]
