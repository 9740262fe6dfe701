"""``aiokafka-lite pipeline``: the pipeline of `aiokafka_lite.spark` as a command."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka_lite.spark.__main__ import main

from .running import NAME


def pipeline(arguments: Sequence[str]) -> int:
    """Run the pipeline that the arguments describe, which it reads by itself; the exit status."""
    return main(arguments, program=f"{NAME} pipeline")
