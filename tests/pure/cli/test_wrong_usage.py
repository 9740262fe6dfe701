"""What cannot be meant is answered with one line that helps, and with status 2, before any broker is asked."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("typer")

from aiokafka_lite.cli import main

WRONG = [
    (("produce", "orders", "--prot", "1"), "--prot"),
    (("produc", "orders"), "No such command 'produc'"),
    (("produce",), "Missing argument"),
    (("produce", "orders", "--acks", "2"), "--acks"),
    (("produce", "orders", "--file", "/nowhere/at/all"), "/nowhere/at/all"),
    (("produce", "orders", "--header", "novalue"), "use NAME=VALUE"),
    (("consume",), "needs topics, or --regex"),
    (("consume", "--regex", "("), "regex='('"),
    (("consume", "orders", "--from", "yesterday"), "use earliest, latest, an offset"),
    (("topics", "create", "t", "--set", "x"), "set='x': use NAME=VALUE"),
    (("topics", "create", "t", "--assignment", "a/b"), "as in 1,2/2,3"),
    (("topics", "alter", "t"), "needs --partitions, --set or --unset"),
    (("groups", "describe"), "needs groups, or --all"),
    (("groups", "reset-offsets", "g"), "one of --to, --shift and --file"),
    (("configs", "describe", "broker", "one"), "the id of a broker is a number"),
    (("configs", "alter", "topic", "t"), "needs --set"),
    (("topics", "list", "-b", "localhost"), "the port is missing"),
    (("topics", "list", "-X", "sasl.password=secret"), "sasl.password=env:VARIABLE"),
    (("topics", "list", "-X", "bootstrap.server=x"), "did you mean bootstrap.servers?"),
    (("topics", "list", "--config", "/nowhere.toml"), "/nowhere.toml"),
    (("topics", "create", "t", "--config", "retention.ms=5"), "--set"),
    (("produce", "orders", "--acks", "5"), "'--acks': '5' is not one of"),
    (("consume", "orders", "--group", ""), "group='': a name"),
]


@pytest.mark.parametrize("arguments, help_", WRONG, ids=[" ".join(arguments) for arguments, _ in WRONG])
def test_one_line_and_status_2(
    arguments: tuple[str, ...], help_: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["aiokafka-lite", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    assert printed.err.startswith("aiokafka-lite: ")
    assert help_ in printed.err
    assert printed.err.count("\n") == 1
    assert "secret" not in printed.err
