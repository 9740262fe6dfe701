"""Write ``docs/errors.md`` by causing each error: ``python docs/make_errors.py``.

The cases are in ``error_cases.py``. Each case runs in virtual time on its own cluster, so the page is the same each
time. A test compares it.
"""

from __future__ import annotations

import logging
import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from error_cases import CASES, Case  # noqa: E402

from aiokafka_lite import EmbeddedCluster  # noqa: E402
from aiokafka_lite.aio import virtual_time  # noqa: E402

PAGE = ROOT / "docs" / "errors.md"

HEAD = """# Errors and what to do

Each entry shows code, the error that it raises, and what to do. `servers` is the address of a cluster with a topic
`orders` of one partition. The classes are in the [reference](reference-types.md#errors): all are subclasses of
`KafkaError`. An error code of a broker is a `BrokerError` with Kafka's `code`. The client retries temporary errors
until the timeout of the call has passed, and then raises `KafkaTimeout` with the last cause. So a retry in your code
only makes sense for `KafkaTimeout`.

The errors are real: `docs/make_errors.py` writes this page, and runs the code of each entry to get its error.
"""


def error_of(case: Case) -> Exception:
    """Run a case on its own cluster; return its error."""

    async def run() -> Exception:
        async with EmbeddedCluster(seed=1, **{"brokers": 1} | case.settings) as cluster:
            await cluster.create_topic("orders", partitions=1, replication_factor=len(cluster.nodes))
            try:
                await case.run(cluster, cluster.bootstrap_servers)
            except Exception as error:  # noqa: BLE001 - the page shows it
                return error
        raise AssertionError(f"{case.title}: no error")

    return virtual_time.run(run())


_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_VARYING = re.compile(r"(?<=aiokafka-lite-)[0-9a-f-]{36}|(?<=0x)[0-9a-f]{8}")  # member ids, checksums


def shown(error: Exception) -> str:
    """Return the last line of the traceback, without the parts that differ between runs."""
    text = f"{type(error).__name__}: {error}"
    return _VARYING.sub("…", _ADDRESS.sub("localhost:9092", text))


def section(case: Case, error: Exception) -> str:
    """Return one entry of the page."""
    message = "\n".join(textwrap.wrap(shown(error), 92, break_long_words=False, break_on_hyphens=False))
    code = f"```py\n{case.code}\n```"
    advice = "\n".join(textwrap.wrap(case.advice, 120, break_long_words=False, break_on_hyphens=False))
    return f"### {case.title}\n\n{code}\n\n```text\n{message}\n```\n\n{advice}\n"


def page(errors: Iterable[Exception]) -> str:
    """Return the whole page. ``errors`` has one error for each of ``CASES``."""
    parts = [HEAD]
    last = ""
    for case, error in zip(CASES, errors, strict=True):
        if case.part != last:
            last = case.part
            parts.append(f"## {case.part}\n")
        parts.append(section(case, error))
    return "\n".join(parts)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    PAGE.write_text(page(map(error_of, CASES)), encoding="utf-8")
