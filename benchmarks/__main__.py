"""All benchmarks, one after the other: ``python -m benchmarks``, or with names, ``python -m benchmarks records``."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

NOT_BENCHMARKS = {
    "__main__",
    "bench",
    "cells",
    "charts",
    "checkouts",
    "compare",
    "group_members",
    "hot_operations",
    "instructions",
    "job",
    "kafka",
    "lifetimes",
    "peers",
    "report",
    "spark_peers",
    "spark_worker",
    "stopwatch",
    "transactions",
    "web_service",
    "worker",
}


def main() -> None:
    here = Path(__file__).parent
    names = sys.argv[1:] or sorted({path.stem for path in here.glob("*.py")} - NOT_BENCHMARKS)
    for name in names:
        print(f"## {name}\n")
        import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
