"""``python -m tests.fuzz``: fuzz every target in turn for some minutes."""

from __future__ import annotations

import argparse
import sys
from random import SystemRandom
from time import monotonic

from .run import Failure, attempt, fuzz
from .targets import Broker, all_targets

TURN = 5.0
"""Seconds of one target before the next one."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(2**32))
    parser.add_argument("--target", help="only this one")
    parser.add_argument("--input", help="one input, as a failure shows it, instead of new ones")
    arguments = parser.parse_args()
    broker = Broker()
    targets = {name: target for name, target in all_targets(broker).items() if arguments.target in (None, name)}
    try:
        if arguments.input is not None:
            error = attempt(targets[arguments.target], bytes.fromhex(arguments.input))
            if error is not None:
                raise error
            return 0
        done = dict.fromkeys(targets, 0)
        until = monotonic() + arguments.minutes * 60
        while monotonic() < until:
            for name, target in targets.items():
                done[name] = fuzz(name, target, arguments.seed, first=done[name], seconds=TURN)
        print(f"seed {arguments.seed}: " + ", ".join(f"{count:,} {name}" for name, count in done.items()))  # noqa: T201
    except Failure as failure:
        print(failure, file=sys.stderr)  # noqa: T201
        return 1
    finally:
        broker.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
