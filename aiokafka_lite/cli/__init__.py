"""The command line. This module only starts it: what a command needs is imported when that command runs."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of ``aiokafka-lite``."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        sys.exit(f"aiokafka-lite needs {error.name}: pip install 'aiokafka_lite[cli]'")
    from aiokafka_lite.cli.commands import main as run_command

    run_command()
