"""Count the instructions of hot operations, and compare them with recorded ones: ``python -m benchmarks.instructions``.

    make bench-instructions                       # exits with 1 if an operation takes 5 % more than recorded
    make bench-instructions INSTRUCTIONS=--record # records the counts of this interpreter and build
    python -m benchmarks.instructions --only transaction --profile /tmp/profile

Other work of the machine changes times, but hardly the number of instructions that a process executes. Valgrind's
callgrind counts those of the client's process (``benchmarks.hot_operations``); the embedded broker runs in another
one. The count of an operation is the least of five samples, divided by the operations of a sample: a sample may have a
timer or a collection of garbage that others do not have. It depends on the interpreter, on the machine's C library and
on the build, compiled or plain Python. So ``instructions.json`` has counts for each interpreter and build, and on
another one the program only prints.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from aiokafka_lite.compiled import COMPILED
from benchmarks.hot_operations import MARK, OPERATIONS, PARTITIONS, READ_TOPIC, SAMPLES, TOPIC, Operation
from benchmarks.kafka import embedded_broker

ROOT = Path(__file__).parent.parent
RECORDED = Path(__file__).with_suffix(".json")
TOLERANCE = 0.05
"""A larger increase fails. Two counts of the same code differ by at most 1 %."""

RUN_TIMEOUT = 3600.0

Counts = dict[str, int]
"""Instructions of one operation by its name."""


def interpreter() -> str:
    """Return what the counts depend on, as the key of ``instructions.json``."""
    build = "compiled" if COMPILED else "plain Python"
    return f"{platform.python_implementation()} {platform.python_version()}, {platform.machine()}, {build}"


def samples(dumps: Path, operations: Sequence[Operation]) -> Iterator[tuple[Operation, list[tuple[int, Path]]]]:
    """Yield the samples of each operation: instructions, and the dump that has them.

    The process marks the begin and the end of each sample, so every second dump is a sample.
    """
    for number, operation in enumerate(operations):
        files = [dumps / f"out.{2 * (number * SAMPLES + sample) + 2}" for sample in range(SAMPLES)]
        totals = [re.search(r"^totals: (\d+)$", file.read_text(), re.MULTILINE) for file in files]
        yield operation, [(int(total[1]), file) for total, file in zip(totals, files, strict=True) if total]


def count(operations: Sequence[Operation], profile: Path | None = None) -> Counts:
    """Run the operations under callgrind. ``profile`` is a directory for a profile of each one's least sample.

    Raises RuntimeError with the end of the output if the run fails.
    """
    topics = ("--topic", f"{TOPIC}:{PARTITIONS}", "--topic", f"{READ_TOPIC}:{PARTITIONS}")
    counts: Counts = {}
    with tempfile.TemporaryDirectory() as directory, embedded_broker(*topics) as (servers, _):
        callgrind = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={directory}/out"]
        command = [*callgrind, f"--dump-before={MARK}", sys.executable, "-m", "benchmarks.hot_operations", servers]
        done = subprocess.run(
            [*command, *(operation.name for operation in operations)],
            cwd=ROOT,
            env=dict(os.environ, PYTHONHASHSEED="0", AIOKAFKA_LITE_PURE=str(int(not COMPILED))),
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT,
            check=False,
        )
        if done.returncode:
            raise RuntimeError("\n".join((done.stderr or done.stdout).strip().splitlines()[-20:]))
        for operation, measured in samples(Path(directory), operations):
            least, dump = min(measured)
            counts[operation.name] = round(least / operation.count)
            if profile is not None:
                profile.mkdir(parents=True, exist_ok=True)
                shutil.copy(dump, profile / re.sub(r"\W+", "-", operation.name))
    return counts


def growth(counts: Mapping[str, int], recorded: Mapping[str, int]) -> list[str]:
    """Print the counts beside the recorded ones. Return the operations that take more than ``TOLERANCE`` more."""
    grown = []
    print("| operation | instructions | recorded | change |\n|---|---:|---:|---:|")
    for name, instructions in counts.items():
        operation = f"{name}, a {OPERATIONS[name].unit}"
        before = recorded.get(name)
        if before is None:
            print(f"| {operation} | {instructions:,} | | |")
            continue
        print(f"| {operation} | {instructions:,} | {before:,} | {instructions / before - 1:+.1%} |")
        if instructions > before * (1 + TOLERANCE):
            grown.append(name)
    return grown


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="operations whose name contains this")
    parser.add_argument("--record", action="store_true", help="write the counts into the file, and compare nothing")
    parser.add_argument("--file", type=Path, default=RECORDED, help="the recorded counts")
    parser.add_argument("--profile", type=Path, help="a directory for the profiles, for callgrind_annotate")
    options = parser.parse_args(sys.argv[1:] if __name__ == "__main__" else [])
    if shutil.which("valgrind") is None:
        sys.exit("valgrind, which counts the instructions, is not installed")
    operations = [operation for name, operation in OPERATIONS.items() if options.only in name]
    if not operations:
        sys.exit(f"no operation has {options.only!r} in its name; there are: {', '.join(OPERATIONS)}")
    recorded: dict[str, Counts] = json.loads(options.file.read_text()) if options.file.exists() else {}
    of_this = recorded.get(interpreter(), {})
    print(f"{interpreter()}\n", flush=True)
    counts = count(operations, options.profile)
    grown = growth(counts, of_this)
    if options.record:
        recorded[interpreter()] = of_this | counts
        options.file.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
    elif not of_this:
        print(f"\n{options.file.name} has no counts of this interpreter and build; --record writes them")
    elif grown:
        sys.exit(f"\nmore than {TOLERANCE:.0%} above the recorded counts: {', '.join(grown)}")
    elif cheaper := [name for name in counts if counts[name] < of_this.get(name, 0) * (1 - TOLERANCE)]:
        print(f"\ncheaper than recorded; --record keeps it so: {', '.join(cheaper)}")


if __name__ == "__main__":
    main()
