"""The help: fast, complete, and with examples that would run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")

import typer
from typer.main import get_command

from aiokafka_lite.cli.commands import application, main

HELP_FORMATTER: Any = typer.Context.__mro__[1].formatter_class  # type: ignore[attr-defined]


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield all commands with their paths."""
    group = group or get_command(application)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def assert_valid(path: tuple[str, ...], words: list[str]) -> None:
    """Assert that the command takes these arguments. The files of examples do not exist here."""
    problem = None
    try:
        ALL[path].make_context("example", words)
    except typer.BadParameter as error:
        problem = str(error)
    assert problem is None or "does not exist" in problem, words


PAGE = Path(__file__).parents[3] / "docs" / "command-line.md"
ALL = dict(commands())


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_explains_itself_and_each_of_its_options(path: tuple[str, ...]) -> None:
    command = ALL[path]
    assert command.help
    for parameter in command.params:
        assert getattr(parameter, "help", "") or parameter.name == "help", parameter.name


def test_every_command_that_deletes_asks_a_person_first() -> None:
    deleting = {path: command for path, command in ALL.items() if path[-1].startswith(("delete", "remove"))}
    assert [path for path, command in deleting.items() if "yes" not in {param.name for param in command.params}] == []


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_values_are_named_by_words_and_not_by_types_of_python(path: tuple[str, ...]) -> None:
    _, _, listed = ALL[path].get_help(typer.Context(ALL[path])).rpartition("Examples:")
    assert re.findall(r"<(?:list|int|str|float|file|path|dir)\b[^>]*>", listed) == []


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_examples_are_commands_with_options_that_exist(path: tuple[str, ...]) -> None:
    _, examples_heading, examples = ALL[path].help.partition("Examples:\n")
    assert examples_heading
    for line in examples.replace("\\\n", " ").splitlines():
        words = shlex.split(line.rpartition("|")[2])
        assert words[: len(path) + 1] == ["aiokafka-lite", *path], line
        assert_valid(path, words[len(path) + 1 :])


def test_help_imports_nothing_of_the_client() -> None:
    code = (
        "import sys, typer; before = set(sys.modules); sys.argv = ['aiokafka-lite', '--help']\n"
        "from aiokafka_lite.cli import main\n"
        "try: main()\n"
        "except SystemExit as error: status = error.code\n"
        "assert not status, status\n"
        "heavy = {'asyncio', 'anyio', 'rich.table', 'aiokafka_lite.errors', 'aiokafka_lite.protocol', 'logging'}\n"
        "print(sorted(heavy & (set(sys.modules) - before)), file=sys.stderr)\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stderr == "[]\n"
    assert "produce" in process.stdout


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("path", [(), ("groups",), ("consume",)], ids=" ".join)
def test_help_fits_the_terminal_and_cuts_no_word(
    path: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["aiokafka-lite", *path, "--help"])
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(typer.Context.__mro__[1], "formatter_class", HELP_FORMATTER)
    with pytest.raises(SystemExit):
        main()
    printed, _, rest = capsys.readouterr().out.partition("Examples:")
    _, _, options = rest.partition("Arguments:")  # examples are copied, so they are not folded
    lines = [*printed.splitlines(), *options.splitlines()]
    assert max(map(len, lines)) <= columns
    assert not any(re.search(r" \S*\w\.\.\.$", line.strip()) for line in lines)
    if path == ("consume",):
        assert "AIOKAFKA_LITE_BOOTSTRAP_SERVER" in options


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(shell: str) -> None:
    code = "import sys; sys.argv = ['aiokafka-lite']; from aiokafka_lite.cli import main; main()"
    variables = {"bash": {"COMP_WORDS": "aiokafka-lite\npro", "COMP_CWORD": "1"}}.get(
        shell, {"_TYPER_COMPLETE_ARGS": "aiokafka-lite pro", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"_AIOKAFKA_LITE_COMPLETE": f"complete_{shell}", **variables},
    )
    assert "produce" in process.stdout
    assert "consume" not in process.stdout


def test_commands_of_the_documentation_have_options_that_exist() -> None:
    blocks = PAGE.read_text(encoding="utf-8").replace("\\\n", " ").split("```")[1::2]
    parts = [part.strip() for block in blocks for line in block.splitlines() for part in line.split("|")]
    typed = [shlex.split(part.removeprefix("$ "), comments=True) for part in parts if "aiokafka-lite " in part]
    seen = 0
    for words in typed:
        path = next((path for path in ALL if tuple(words[1 : len(path) + 1]) == path), None)
        if path is not None:
            assert_valid(path, [word for word in words[len(path) + 1 :] if word != "&"])
            seen += 1
    assert seen > 8
