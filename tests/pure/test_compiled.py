"""The choice between the compiled modules and the same files as plain Python."""

from __future__ import annotations

import ast
import gc
import logging
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aiokafka_lite
import build_backend
from aiokafka_lite import consumer, producer
from aiokafka_lite.blocking.sending import Delivery as BlockingDelivery
from aiokafka_lite.blocking.sending import SendQueue
from aiokafka_lite.compiled import COMPILED, SourceFinder
from aiokafka_lite.producer.delivery import BatchResult, Delivery
from aiokafka_lite.producer.partitioning.choice import PartitionChoice
from aiokafka_lite.producer.partitioning.partitioner import (
    DefaultPartitioner,
    ExplicitPartitioner,
    RoundRobinPartitioner,
)

PRINT = (
    "import aiokafka_lite, aiokafka_lite.protocol.records.record_format as codec;"
    "print(aiokafka_lite.compiled.COMPILED, codec.__file__.endswith('.py'))"
)

compiled_only = pytest.mark.skipif(not COMPILED, reason="no module is compiled here; `make build` compiles them")


def run(program: str, pure: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "AIOKAFKA_LITE_PURE": pure}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)


def test_the_environment_can_ask_for_plain_python() -> None:
    assert run(PRINT, "1").stdout == "False True\n"


@compiled_only
def test_the_compiled_modules_run_unless_the_environment_says_otherwise() -> None:
    assert run(PRINT, "").stdout == "True False\n"
    assert run(PRINT, "0").stdout == "True False\n"


@pytest.mark.skipif(
    any(Path(aiokafka_lite.__path__[0]).glob("*__mypyc*")), reason="there are compiled modules here; `make unbuild`"
)
def test_a_compiled_build_that_is_required_and_missing_fails_the_import() -> None:
    assert run(PRINT, "").stdout == "False True\n"
    assert "AIOKAFKA_LITE_PURE=0 requires the compiled build" in run(PRINT, "0").stderr


@compiled_only
def test_a_simulation_has_the_same_trace_as_in_plain_python() -> None:
    program = "import runpy; runpy.run_module('tests.embedded.simulated.traces', run_name='__main__')"
    compiled, plain = run(program, "0"), run(program, "1")
    assert compiled.stdout == plain.stdout != "", compiled.stderr + plain.stderr


def test_another_value_is_refused_by_name() -> None:
    assert "AIOKAFKA_LITE_PURE must be 1 or 0, got 'yes'" in run(PRINT, "yes").stderr


@compiled_only
def test_every_hot_module_is_compiled_and_its_source_is_installed_beside_it() -> None:
    modules = (*build_backend.COMPILED_MODULES, *build_backend.C_MODULES)
    names = [module.rpartition(".")[0].replace("/", ".") for module in modules]
    program = "import sys, importlib; print(*(importlib.import_module(name).__file__ for name in sys.argv[1:]))"
    for pure, expected in (("", False), ("1", True)):
        environment = {**os.environ, "AIOKAFKA_LITE_PURE": pure}
        done = subprocess.run(
            [sys.executable, "-c", program, *names], capture_output=True, text=True, env=environment, check=True
        )
        assert {name: path.endswith(".py") for name, path in zip(names, done.stdout.split())} == dict.fromkeys(
            names, expected
        )


@compiled_only
def test_the_garbage_collector_does_not_look_at_deliveries() -> None:
    assert not gc.is_tracked(Delivery(BatchResult("t", 0), 0, 0, -1, -1))
    assert not gc.is_tracked(BlockingDelivery(SendQueue()))


def test_every_hot_module_exists() -> None:
    assert [module for module in build_backend.COMPILED_MODULES if not Path(build_backend.ROOT, module).exists()] == []


each_hot_module = pytest.mark.parametrize("module", build_backend.COMPILED_MODULES)


@each_hot_module
def test_a_hot_module_sets_the_cause_of_an_error_itself(module: str) -> None:
    """mypyc ignores the ``from`` of a raise, so ``__cause__`` would be None where the module is compiled."""
    tree = ast.parse(Path(build_backend.ROOT, module).read_text())
    assigned = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Assign)}
    lost = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise) and isinstance(node.cause, ast.Name) and node.exc is not None
        if f"{ast.unparse(node.exc)}.__cause__ = {node.cause.id}" not in assigned
    ]
    assert lost == []


@each_hot_module
def test_a_hot_module_defines_no_protocol(module: str) -> None:
    """A class of a user cannot inherit from a compiled protocol."""
    tree = ast.parse(Path(build_backend.ROOT, module).read_text())
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    bases = {class_.name: [ast.unparse(base).partition("[")[0] for base in class_.bases] for class_ in classes}
    assert [name for name in bases if "Protocol" in bases[name]] == []


def test_a_source_is_found_beside_an_extension_module_of_the_same_name(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("")
    (tmp_path / f"module{build_backend.EXTENSION_SUFFIXES[0]}").write_text("")
    spec = SourceFinder("package").find_spec("package.module", [str(tmp_path)])
    assert spec is not None
    assert spec.origin == str(tmp_path / "module.py")
    assert SourceFinder("package").find_spec("other.module", [str(tmp_path)]) is None
    assert SourceFinder("package").find_spec("package.absent", [str(tmp_path)]) is None


SUBCLASSED: list[type[Any]] = [
    *(aiokafka_lite.Admin, aiokafka_lite.Consumer, aiokafka_lite.ConsumerGroup, aiokafka_lite.ConsumerGroupHandler),
    *(aiokafka_lite.Deserializer, aiokafka_lite.EmbeddedCluster, consumer.IntDeserializer, producer.IntSerializer),
    *(aiokafka_lite.JsonDeserializer, aiokafka_lite.JsonSerializer, producer.Partitioner, aiokafka_lite.Producer),
    *(producer.ProducerInterceptor, consumer.RebalanceListener, aiokafka_lite.Serializer),
    *(aiokafka_lite.StrDeserializer, aiokafka_lite.StrSerializer),
]


@pytest.mark.parametrize("base", SUBCLASSED)
def test_public_classes_can_be_subclassed(base: type[Any]) -> None:
    subclass = type(f"My{base.__name__}", (base,), {"close": lambda self: "mine", "__init__": lambda self: None})
    assert subclass().close() == "mine"


@pytest.mark.parametrize("base", [DefaultPartitioner, RoundRobinPartitioner, ExplicitPartitioner])
def test_methods_of_a_users_partitioner_are_called_instead_of_those_of_its_base(base: type[Any]) -> None:
    class Mine(base):  # type: ignore[misc]
        def partition(self, topic: str, key: bytes | None, value: bytes | None, view: object) -> int:
            return 3

    view: Any = None
    assert PartitionChoice(Mine(), view, deque()).choose("t", None, None, {3: None}) == 3


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """Undo what setuptools does to the root logger, which the logs of later tests would show."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize("pure, needs_mypyc", [(None, False), ("1", False), ("0", True)])
def test_a_build_from_source_is_plain_python_unless_it_is_asked_to_compile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pure: str | None, needs_mypyc: bool
) -> None:
    monkeypatch.chdir(build_backend.ROOT)
    monkeypatch.delenv("AIOKAFKA_LITE_PURE", raising=False)
    if pure is not None:
        monkeypatch.setenv("AIOKAFKA_LITE_PURE", pure)
    requires = build_backend.get_requires_for_build_wheel()
    assert any("mypyc" in name for name in requires) == needs_mypyc
    if not needs_mypyc:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["setup.py", "bdist_wheel"])
        assert build_backend.extensions() == []
        assert capsys.readouterr().out == (
            "aiokafka_lite is installed as plain Python; AIOKAFKA_LITE_PURE=0 in the environment compiles it\n"
        )


def test_a_build_refuses_another_value_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["setup.py", "bdist_wheel"])
    monkeypatch.setenv("AIOKAFKA_LITE_PURE", "yes")
    with pytest.raises(SystemExit, match="AIOKAFKA_LITE_PURE must be 1 or 0, got 'yes'"):
        build_backend.extensions()
