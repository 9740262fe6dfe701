"""The trace hashes of some seeds, to compare interpreters: ``python -m tests.embedded.simulated.traces``.

With ``--same-as FILE``, the hashes must be those that another interpreter, or the compiled build, has printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from aiokafka_lite.testing.simulation import orders, processed_at_least_once, simulate
from tests.embedded.simulated.classic_mistakes import billing, works_in_parallel, writes_bills_once
from tests.embedded.simulated.database_services import fills_an_outbox

SERVICES = (billing, works_in_parallel, writes_bills_once, fills_an_outbox)
SEEDS = range(2)


def traces() -> Iterator[str]:
    """Yield one line for each service and seed."""
    for service in SERVICES:
        for seed in SEEDS:
            result = simulate(service, orders(40), seeds=[seed], checks=[processed_at_least_once()])
            yield f"{service.__name__} {seed} {result.trace}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--same-as", type=Path, metavar="FILE", help="the output to compare with")
    options = parser.parse_args()
    if options.same_as is None:
        for line in traces():
            sys.stdout.write(line + "\n")
        return
    expected, own = options.same_as.read_text(encoding="utf-8").splitlines(), list(traces())
    version = sys.version.partition(" ")[0]
    if own != expected:
        different = [f"{line}, not {other}" for line, other in zip(own, expected, strict=False) if line != other]
        sys.exit(f"{len(different)} of {len(own)} traces differ on Python {version}:\n" + "\n".join(different))
    sys.stdout.write(f"the traces of {len(own)} seeds are the same on Python {version}\n")


if __name__ == "__main__":
    main()
