"""Each Python block on a page is run by a test, or is a part of a program whose names exist."""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest

from aiokafka_lite.metrics.instruments import INSTRUMENTS
from tests.pure.documents import PAGES, PARTS, ROOT, Block, Names, blocks, code_spans, rows

EXAMPLES = ROOT / "docs" / "examples"
OTHERS_NAMES = {
    *("command_timeout", "statement_cache_size"),  # of asyncpg
    *("pool_mode", "prepare_threshold", "tcp_user_timeout"),  # of PgBouncer, psycopg, and PostgreSQL's library
    *("asyncio_mode", "end_to_end"),  # pytest's, and this repository's tests
    "rule_files",  # of Prometheus
    "max_active_runs",  # of Airflow
    "10_2",  # of the name of the jar of Spark's connector
    *("ConnectionString", "WriteDataIdempotently", "identityPoolId"),  # of managed services
    "eager_task_factory",  # asyncio's
    "real_asyncio",  # freezegun's
    *("BLOCKING_SOAK_SECONDS", "BOOTSTRAP_SERVERS", "DIFFERENTIAL_SEEDS", "KAFKA_BOOTSTRAP"),  # the shell's
    *("key_base64", "value_base64"),  # fields that the command line makes from two parts
    *("KRB5_CONFIG", "dns_canonicalize_hostname"),  # of Kerberos
    *("createDataFrame", "foreachBatch", "foreachPartition", "hideTraceback"),  # Spark's
    *("AIOConsumer", "AIOProducer"),  # confluent-kafka's
    "worker_process_shutdown",  # Celery's
    *(
        "KillMode",
        "TimeoutStopSec",
        "stop_grace_period",
        "terminationGracePeriodSeconds",
    ),  # settings of service managers
}

ALL = list(chain.from_iterable(map(blocks, PAGES)))


def problems(block: Block, *before: Block) -> list[str]:
    names = Names(PARTS if block.is_part else {})
    for part in [*before, block]:
        names.check(part.text)
    return names.problems


def test_no_block_is_overlooked() -> None:
    for page in PAGES:
        assert len(blocks(page)) == page.read_text(encoding="utf-8").count("```python"), page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_names_in_every_block_exist(page: Path) -> None:
    parts = [block for block in blocks(page) if not block.is_example]
    for number, block in enumerate(parts):
        before = [] if block.is_program else parts[:number]  # a program runs alone
        assert problems(block, *before) == [], str(block)


def test_names_in_the_text_are_names_in_the_package() -> None:
    """Words of code that look like Python's names: with an underscore, or a capital in the middle."""
    files = [path for place in ("aiokafka_lite", "examples") for path in (ROOT / place).rglob("*.py")]
    files += [*(ROOT / "docs").glob("*.py"), ROOT / "mkdocs.yml"]
    words_of = (set(re.findall(r"\w+", path.read_text(encoding="utf-8"))) | {path.stem} for path in files)
    tests = {path.stem for place in ("tests", "benchmarks", "docs/examples") for path in (ROOT / place).rglob("*.py")}
    exported = {instrument.prometheus_name for instrument in INSTRUMENTS}
    known_names = OTHERS_NAMES.union(tests, exported, *words_of)
    for page in PAGES:
        if page.name.startswith("migrating-from-"):
            continue
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        words = re.findall(r"\w+", " ".join(code_spans(text)))
        looked_up = {word for word in words if "_" in word.strip("_") or re.search(r"[a-z][A-Z]", word)}
        assert sorted(looked_up - known_names) == [], page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_site_cuts_no_line_of_code_off(page: Path) -> None:
    """The column of the site has room for 95 characters. It wraps output."""
    wrapped = ("text", "json", "console", "mermaid")
    fences = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for language, code in fences if language not in wrapped for line in code.splitlines()]
    assert [line for line in lines if len(line) > 95] == []


def test_every_extra_for_users_is_on_the_page_about_installation() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = ROOT / "docs" / "installation.md"
    named = {span for row in rows(page) for span in code_spans(row.cells.get("extra", ""))}
    assert named == set(project["optional-dependencies"])


def test_the_extra_all_has_every_extra_but_those_that_need_more_than_a_wheel() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    names = re.findall(r"[\w-]+", re.sub(r"^\w+\[", "", extras["all"][0]))
    assert {*names, "schema-registry"} == extras.keys() - {"all", "gssapi", "spark-jre"}, "avro has schema-registry"


def test_every_example_is_on_its_page_and_every_one_on_the_page_is_there() -> None:
    printed = {block.text.split('"')[1] for block in ALL if block.is_example}
    programs = [*EXAMPLES.rglob("*.py"), *(ROOT / "examples" / "shop").glob("*.py")]
    assert printed == {str(path.relative_to(ROOT)) for path in programs}


def test_the_image_of_the_web_service_has_what_the_program_imports() -> None:
    lines = (EXAMPLES / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    steps = dict(line.split(maxsplit=1) for line in lines if not line.startswith("#"))
    (source,) = steps["COPY"].split()[:-1]
    tree = ast.parse((EXAMPLES / source).read_text(encoding="utf-8"))
    modules = {node.module.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    packages = {package for package in steps["RUN"].split() if package not in ("pip", "install", "--no-cache-dir")}
    assert modules - sys.stdlib_module_names - {"pydantic"} == packages, "fastapi brings pydantic"
    # As a list: a shell would be process 1, and get the SIGTERM.
    assert json.loads(steps["CMD"]) == ["python", source]
    port = re.findall(r"PORT=(\d+)", steps["ENV"])
    assert port == [steps["EXPOSE"]]
    assert f"localhost:{port[0]}/live" in steps["HEALTHCHECK"]


def test_the_table_of_examples_has_each_program_and_its_length() -> None:
    listed = {}
    for row in rows(ROOT / "docs" / "examples.md"):
        if "lines" in row.cells:
            (name,) = re.findall(r"^\[(\S+)\]\(#", row.cells["program"])
            listed[name] = int(row.cells["lines"])
    programs = [path for path in EXAMPLES.rglob("*.py") if path.name != "invoices.py"]  # what two of them test
    lengths = {
        path.relative_to(EXAMPLES).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in programs
    }
    assert listed == lengths


@pytest.mark.parametrize(
    "code, problem",
    [
        ("from aiokafka_lite import Broducer", "aiokafka_lite has no Broducer"),
        ("await produce()", "produce is not defined"),
        ("await producer.push(b'x')", "has no push"),
        ("await producer.send('orders', b'x', topics=3)", "producer.send has no argument topics"),
        ("from aiokafka_lite import Consumer\nConsumer('localhost:9092', lingre=3)", "Consumer has no argument lingre"),
        ("await admin.topics.remove('orders')", "has no remove"),
    ],
)
def test_a_name_that_does_not_exist_is_found(code: str, problem: str) -> None:
    block = Block(ROOT / "page.md", 1, "part of a program", code)
    assert any(problem in text for text in problems(block)), problems(block)


def test_a_part_that_is_no_python_is_found() -> None:
    with pytest.raises(SyntaxError):
        problems(Block(ROOT / "page.md", 1, "part of a program", "async for record in consumer"))
