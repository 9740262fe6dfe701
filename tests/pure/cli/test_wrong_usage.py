"""Wrong arguments are refused with one helpful line and status 2, before a connection is made."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("typer")

from aiokafka_lite.cli import main
from aiokafka_lite.cli.terminal.wrong_usage import text_of

WRONG = [
    (("produce", "orders", "--prot", "1"), "--prot"),
    (("produc", "orders"), "No such command 'produc'"),
    (("produce",), "Missing argument"),
    (("produce", "orders", "--acks", "2"), "--acks"),
    (("produce", "orders", "--file", "/nowhere/at/all"), "/nowhere/at/all"),
    (("produce", "orders", "--header", "novalue"), "--header must be NAME=VALUE, got 'novalue'"),
    (("produce", "orders", "--rate", "-1"), "'-1'"),
    (("produce", "orders", "--value-message", "shop.Order"), "--value-message requires --value-schema"),
    (("consume", "orders", "--partition", "one"), "'one'"),
    (("groups", "reset-offsets", "g", "--to-earliest"), "no such option --to-earliest; use --to earliest; see"),
    (("topics", "create", "t", "--replication-factor", "3"), "no such option --replication-factor; use --replicas;"),
    (
        ("-b", "a:9092", "topics", "list"),
        "no such option -b here; options follow the command, as in aiokafka-lite COMMAND",
    ),
    (
        ("topics", "--json", "list"),
        "no such option --json here; options follow the command, as in aiokafka-lite topics COM",
    ),
    (("consume", "--topic", "orders"), "no such option --topic; give the name without an option"),
    (("consume", "orders", "--from-beginning"), "use --from earliest"),
    (("configs", "alter", "topic", "t", "--add-config", "a=b"), "use --set"),
    (("consume",), "requires topics or --regex"),
    (("consume", "--regex", "("), "--regex must be a regular expression, got '('"),
    (("consume", "orders", "--from", "yesterday"), "--from must be earliest, latest, an offset"),
    (("topics", "create", "t", "--set", "x"), "--set must be NAME=VALUE, got 'x'"),
    (("topics", "create", "t", "--assignment", "a/b"), "as in 1,2/2,3"),
    (("topics", "alter", "t"), "requires --partitions, --set or --unset"),
    (("groups", "describe"), "requires groups or --all"),
    (("groups", "reset-offsets", "g"), "one of --to, --shift and --file"),
    (("configs", "describe", "broker", "one"), "broker must be the id of a broker, a number"),
    (("configs", "alter", "topic", "t"), "requires --set"),
    (("topics", "list", "-b", "localhost"), "the port is missing"),
    (("topics", "list", "-X", "sasl.password=secret"), "sasl.password=env:VARIABLE"),
    (("topics", "list", "-X", "bootstrap.server=x"), "did you mean bootstrap.servers?"),
    (("topics", "list", "--config", "/nowhere.toml"), "/nowhere.toml"),
    (("topics", "create", "t", "--config", "retention.ms=5"), "--set"),
    (("produce", "orders", "--acks", "5"), "'--acks': '5' is not one of"),
    (("consume", "t", "--partition", "1", "--group", "g"), "--partition and --group exclude each other"),
    (("consume", "orders", "--group"), "--group' requires an argument; see"),
    (("lag", "--watch=3"), "--watch"),
    (("topics", "list", "--topic", "orders"), "--topic; see"),
    (("consume", "orders", "--entity-type", "topics"), "--entity-type; see"),
    (("consume", "orders", "--group", ""), "--group must be a name that is not empty"),
    (("produce", "orders", "--key-separator", ""), "--key-separator must be a text that is not empty"),
    (("consume", "orders", "--regex", "o.*"), "requires topics or --regex, not both; see"),
    (("consume", "orders", "--from", "1h", "--until", "2h"), "--from must be before --until, got '1h' and '2h'"),
    (("topics", "create", "t", "-p", "2", "--assignment", "1/2"), "--assignment excludes --partitions and --replicas"),
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


def test_an_unknown_command_of_a_later_click_is_named() -> None:
    """click 8.4 and later list similar commands in the error, as for options."""

    class NoSuchCommand(Exception):
        possibilities = ("list",)
        ctx = object()

        def format_message(self) -> str:
            return "No such command 'lst'."

    assert text_of(NoSuchCommand()) == "No such command 'lst'"


SECRET = "S3CR3T-xyz"


@pytest.mark.parametrize(
    "arguments",
    [
        ("users", "add", "bob", SECRET),
        ("topics", "list", "-b", f"bob:{SECRET}@h:1"),
        ("topics", "list", "-b", f"h:1;password={SECRET}"),
        ("topics", "list", "-X", SECRET),
        ("topics", "list", "-X", f"sasl.password={SECRET}"),
        ("topics", "list", "-X", f"security.protocol={SECRET}"),
        ("topics", "list", "--config", SECRET),
        ("topics", "list", "--config", f"sasl.password={SECRET}"),
        ("broker", "--sasl-user", SECRET),
    ],
    ids=" ".join,
)
def test_what_may_be_a_secret_is_not_quoted(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["aiokafka-lite", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code
    captured = capsys.readouterr()
    assert captured.err
    assert SECRET not in captured.err + captured.out
