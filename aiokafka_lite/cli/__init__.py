"""The command line. This module only starts it: a command imports what it needs when it runs."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of ``aiokafka-lite``."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        sys.exit(f"aiokafka-lite needs {error.name}; run: pip install 'aiokafka_lite[cli]'")
    from .commands import main as run_command

    run_command()
