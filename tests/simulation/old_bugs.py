"""Old bugs of this project, put back one at a time: the simulation has to find each within 100 seeds.

Three bugs of the embedded broker never were in it: ``early-records``, ``early-offsets`` and ``unstable-offsets`` show
that the checks of transactions can fail.

``python -m tests.simulation.old_bugs`` copies the package into a temporary directory and puts the text of the bug in
place of the fix. Then it searches seeds until one fails. That seed must pass without the bug. It is printed with its
first broken promise. This shows that the simulation can see such bugs; run it after changes to the simulation. With
names as arguments it tries only those.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.world import simulate

ROOT = Path(__file__).parents[2]
SEEDS = "0-100"
SEEDS_WITH_SHARE_GROUPS = "30400-30500"
SEEDS_WITH_CHAINS = "50000-50100"
SEEDS_WITH_CHURN = "70000-70100"
WORKERS = os.environ.get("WORKERS", "0")


@dataclass(frozen=True, slots=True)
class OldBug:
    """A bug, and how to put it back: ``fixed`` occurs once in ``path`` and becomes ``broken``."""

    name: str
    effect: str
    path: str
    fixed: str
    broken: str
    seeds: str = SEEDS


OLD_BUGS = (
    OldBug(
        "two-readings-of-the-clock",
        "a record for a missing partition is kept by one reading of the clock, and refused by the next one",
        "aiokafka_lite/producer/accumulator.py",
        "                place = self._keep_unplaced(topic, record, sent_at)\n",
        "                place = self._add_unplaced(topic, record, sent_at)\n",
        SEEDS_WITH_CHURN,
    ),
    OldBug(
        "read-while-leaving",
        "a member that reads again while LeaveGroup is in flight never joins again",
        "aiokafka_lite/group/member.py",
        "                self._overdue = False\n                return self._follow_subscription()\n",
        "                return self._follow_subscription()\n",
    ),
    OldBug(
        "session-without-heartbeats",
        "a member without heartbeats keeps partitions that another coordinator has given to other members",
        "aiokafka_lite/group/heartbeats.py",
        "if loop.time() + pause >= self._session_ends and not self._blocked_loop",
        "if False and not self._blocked_loop",
    ),
    OldBug(
        "late-answer",
        "an answer to Fetch from before a seek is applied after it",
        "aiokafka_lite/consumer/fetch/answers.py",
        "is_outdated = assigned.position.version != planned.version or assigned.buffer.end != planned.offset",
        "is_outdated = False",
    ),
    OldBug(
        "record-in-hand",
        "a commit during the work on a record includes that record",
        "aiokafka_lite/consumer/group/poll_tracker.py",
        "offset = chunk.in_hand",
        "offset = chunk.last_taken + 1",
    ),
    OldBug(
        "new-numbers",
        "a batch without an answer is sent again under other sequence numbers, and is written twice",
        "aiokafka_lite/producer/sequences.py",
        "        lacking = self._renumber\n",
        "        lacking = True\n",
    ),
    OldBug(
        "overtaking",
        "without idempotence, a batch is written before an earlier one that has to be sent again",
        "aiokafka_lite/producer/partition.py",
        "self._depth = depth if ids is not None else 1",
        "self._depth = depth",
    ),
    OldBug(
        "late-records",
        "in generation 1, a record of an aborted transaction arrives behind the marker, and is read with the next one",
        "aiokafka_lite/producer/transactions/transactions.py",
        "while self._ids.generation < 2 and await self._senders.wait_answered():",
        "while False:",
    ),
    OldBug(
        "replaced-leader",
        "a leader that was replaced without its knowledge overwrites the state of a share partition",
        "aiokafka_lite/embedded/coordinators/share/partitions.py",
        "        if leader_epoch < state.leader_epoch:\n",
        "        if False:\n",
        SEEDS_WITH_SHARE_GROUPS,
    ),
    OldBug(
        "early-records",
        "a reader of committed records gets records of a transaction that is still open",
        "aiokafka_lite/embedded/log/transaction_index.py",
        "        return min((high_watermark, *firsts, *islice(self.open.values(), 1)))\n",
        "        return min((high_watermark, *firsts))\n",
        SEEDS_WITH_CHAINS,
    ),
    OldBug(
        "early-offsets",
        "an offset of a transaction that is still open is the offset of its group",
        "aiokafka_lite/embedded/coordinators/groups/transactional_offsets.py",
        "            self.add(index, producer[0], group_id, placed)\n",
        "            self._store(group_id, placed)\n",
        SEEDS_WITH_CHAINS,
    ),
    OldBug(
        "unstable-offsets",
        "a member gets the offset before that of a transaction which is being committed, and reads records again",
        "aiokafka_lite/embedded/handlers/group_offsets.py",
        "    return context.broker.groups.transactional.pending(group_id) if stable else ()\n",
        "    return ()\n",
        SEEDS_WITH_CHAINS,
    ),
)


def put_back(bug: OldBug, root: Path) -> None:
    """Replace the fix by the bug. Raises ValueError if the code has changed, so ``fixed`` does not occur once."""
    path = root / bug.path
    text = path.read_text()
    if text.count(bug.fixed) != 1:
        raise ValueError(f"{bug.name}: {bug.path} has the text of the fix {text.count(bug.fixed)} times, not once")
    path.write_text(text.replace(bug.fixed, bug.broken))


def search(bug: OldBug) -> tuple[bool, str]:
    """Return whether the simulation finds the bug, and its output."""
    with tempfile.TemporaryDirectory() as directory:
        for name in ("aiokafka_lite", "tests"):
            shutil.copytree(ROOT / name, Path(directory) / name, ignore=shutil.ignore_patterns("__pycache__"))
        put_back(bug, Path(directory))
        options = ["--failures", "1", "--no-shrink", "--workers", WORKERS]
        command = [sys.executable, "-m", "tests.simulation", bug.seeds, *options]
        run = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    lines = run.stdout.splitlines() or run.stderr.splitlines()[-1:]
    match = re.match(r"seed (\d+):", lines[0] if lines else "")
    if match is not None and simulate(int(match[1])).anomalies:
        return False, f"seed {match[1]} fails without the bug as well"
    return match is not None, "\n".join(lines[:2])


def main() -> int:
    bugs = [bug for bug in OLD_BUGS if not sys.argv[1:] or bug.name in sys.argv[1:]]
    missed = 0
    for bug in bugs:
        seed, output = search(bug)
        missed += not seed
        print(f"{'found' if seed else 'MISSED'}: {bug.name}: {bug.effect}\n{output}", flush=True)
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
