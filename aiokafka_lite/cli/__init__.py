"""The command line. This module only starts it: a command imports what it needs when it runs."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run ``aiokafka-lite``, the console script."""
    _replace_closed_streams()
    _write_utf8()
    try:
        try:
            import rich  # noqa: F401
            import typer  # noqa: F401
        except ImportError as error:
            sys.exit(f"aiokafka-lite needs {error.name}; run: pip install 'aiokafka_lite[cli]'")
        from .commands import main as run_command

        run_command()
    except KeyboardInterrupt:  # before or after a command, whose event loop has a handler for the signal
        sys.exit(130)


def _replace_closed_streams() -> None:
    """Open the null device for each standard stream that the shell has closed, as in ``<&-``: its object is None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _write_utf8() -> None:
    """Write UTF-8 into files and pipes on Windows too, whose code pages lack most characters."""
    if sys.platform == "win32":
        for stream in (sys.stdout, sys.stderr):
            if not stream.isatty():
                stream.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
