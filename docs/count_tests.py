"""Write ``docs/compatibility.md`` from results of the end-to-end suite: ``python docs/count_tests.py RESULTS...``.

RESULTS are files that pytest's ``--junitxml`` wrote; ``make test-matrix`` does both. A test counts in the last column
that it matches. Tests without a broker in their name are left out.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.real.releases import MATRIX  # noqa: E402

PAGE = ROOT / "docs" / "compatibility.md"
BROKERS = ("embedded", *MATRIX)


class Feature(NamedTuple):
    """A column: the tests whose ``module::name[parameters]`` matches the pattern."""

    title: str
    pattern: str


FEATURES = [
    Feature("produce, consume", r"^test_(round_trip|bad_input|producer|consumer)"),
    Feature("gzip, snappy, lz4", r"\b(gzip|snappy|lz4)\b"),
    Feature("zstd", r"\bzstd\b"),
    Feature("groups", r"^test_group"),
    Feature("groups with other clients", r"^test_groups::test_a_group_of_two_clients"),
    Feature("static members", r"^test_group.*static"),
    Feature("transactions", r"^test_(transactions|exactly_once)"),
    Feature("reading transactions", r"^test_reading_transactions"),
    Feature("admin", r"^test_admin"),
    Feature("groups by KIP-848", r"of_the_new_protocol"),
    Feature("librdkafka, Kafka's tools", r"^test_(interop|java_tools)"),
    Feature("command line", r"^test_(cli|command_line)"),
    Feature("TLS, SASL", r"^test_(security|tls|sasl)"),
]
ALL_ELSE = "all else"


class Result(NamedTuple):
    """One test on one broker. ``skipped`` is the reason, if it was."""

    broker: str
    feature: str
    failed: bool
    skipped: str | None


def results(path: Path) -> Iterator[Result]:
    """Yield the tests of a results file that ran on a broker or were skipped for it."""
    for case in ElementTree.parse(path).iter("testcase"):
        module, name = case.get("classname", "").rpartition(".")[2], case.get("name", "")
        broker = broker_of(name)
        if broker is None:
            continue
        skipped = case.find("skipped")
        yield Result(
            broker,
            feature_of(f"{module}::{name}"),
            failed=case.find("failure") is not None or case.find("error") is not None,
            skipped=None if skipped is None else skipped.get("message", ""),
        )


def broker_of(name: str) -> str | None:
    """Return the broker among a test's parameters."""
    parameters = re.search(r"\[(.*)\]$", name)
    tokens = re.split(r"[- ]", parameters[1]) if parameters is not None else []  # "secured 4.3.1" is one too
    return next((broker for broker in BROKERS if broker in tokens), None)


def feature_of(test: str) -> str:
    """Return the column in which a test counts."""
    return next((feature.title for feature in reversed(FEATURES) if re.search(feature.pattern, test)), ALL_ELSE)


def page(test_results: Iterable[Result], date: str) -> str:
    """Return the whole page."""
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    reasons: dict[str, set[str]] = defaultdict(set)
    for result in test_results:
        kind = "failed" if result.failed else "passed" if result.skipped is None else "skipped"
        counts[result.feature][result.broker][kind] += 1
        if result.skipped:
            reasons[result.skipped].add(result.broker)
    titles = [title for title in (*(feature.title for feature in FEATURES), ALL_ELSE) if title in counts]
    brokers = [broker for broker in BROKERS if any(broker in counts[title] for title in titles)]
    lines = [
        "# What works against which Kafka",
        "",
        "The same end-to-end suite runs on the embedded cluster and on each release of Apache Kafka. A number counts",
        f"the tests that passed on {date}. A dash means that no test applies, for the reasons below.",
        "`docs/count_tests.py` writes this page from the results of `make test-matrix`.",
        "",
        "| broker | " + " | ".join(titles) + " |",
        "|---" * (len(titles) + 1) + "|",
        *(f"| {broker} | {' | '.join(cell(counts[title][broker]) for title in titles)} |" for broker in brokers),
    ]
    if reasons:
        lines += ["", "## Not tested", "", "| on | reason |", "|---|---|"]
        rows = ((", ".join(sorted(where, key=BROKERS.index)), reason) for reason, where in reasons.items())
        lines += [f"| {where} | {reason} |" for where, reason in sorted(rows, key=lambda row: row[1].lower())]
    return "\n".join([*lines, ""])


def cell(counted: Counter[str]) -> str:
    """Return the number of passed tests, and of failures in bold."""
    if counted["failed"]:
        return f"{counted['passed']}, **{counted['failed']} failed**"
    return str(counted["passed"]) if counted["passed"] else "–"


def date_of(path: Path) -> str:
    """Return the day on which the tests ran."""
    suite = next(ElementTree.parse(path).iter("testsuite"))
    return suite.get("timestamp", "").partition("T")[0]


def main(paths: list[Path]) -> int:
    """Write the page; 1 if it shows a failure."""
    if not paths:
        print("usage: python docs/count_tests.py RESULTS..., files written by pytest --junitxml", file=sys.stderr)
        return 2
    test_results = [result for path in paths for result in results(path)]
    PAGE.write_text(page(test_results, max(map(date_of, paths))), encoding="utf-8")
    return 1 if any(result.failed for result in test_results) else 0


if __name__ == "__main__":
    sys.exit(main([Path(argument) for argument in sys.argv[1:]]))
