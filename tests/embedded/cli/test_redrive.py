"""``aiokafka-lite redrive``: dead letters go back to their origins."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

from tests.embedded.cli.conftest import CommandLine

_numbers = count(1)


def dead_letters(cli: CommandLine) -> tuple[str, str]:
    """Make an origin and its dead-letter topic with three records; return both names."""
    origin = f"redriven-{next(_numbers)}"
    dead = f"{origin}.dead"
    cli.ask("topics", "create", origin, dead)

    async def fill() -> None:
        for value, error in (b"a", b"ValueError"), (b"b", b"OSError"), (b"c", b"OSError"):
            headers = {"origin.topic": origin.encode(), "origin.partition": b"0", "error.class": error}
            await cli.server.cluster.produce(dead, value, headers=headers)

    cli.server.call(fill)
    return origin, dead


def test_a_dry_run_shows_what_the_command_then_sends(cli: CommandLine) -> None:
    origin, dead = dead_letters(cli)
    rows = [[origin, "OSError", "2"], [origin, "ValueError", "1"]]
    assert cli.rows("redrive", dead, "--dry-run") == rows
    assert cli.run("redrive", dead, "--dry-run")[2] == (
        "aiokafka-lite: nothing was sent; remove --dry-run to send these records\n"
    )
    assert cli.ask("consume", origin, "--until", "end") == ""
    assert cli.rows("redrive", dead) == rows
    assert cli.ask("consume", origin, "--until", "end") == "a\nb\nc\n"
    status, output, errors = cli.run("redrive", dead)
    assert (status, output, errors) == (0, "", f"aiokafka-lite: no record of {dead} was sent\n")


def test_headers_choose_the_records(cli: CommandLine) -> None:
    origin, dead = dead_letters(cli)
    status, output, errors = cli.run("redrive", dead, "--header", "error.class=OSError", "--json")
    assert (status, errors) == (0, "aiokafka-lite: 1 without the headers were left out\n")
    assert json.loads(output) == {
        "executed": True,
        "done": [{"topic": origin, "error": "OSError", "records": 2}],
        "failed": [],
    }
    chosen = ("--header", "error.class=ValueError", "--header", f"origin.topic={origin}")
    assert cli.rows("redrive", dead, *chosen, "--from-beginning") == [[origin, "ValueError", "1"]]
    assert cli.ask("consume", origin, "--until", "end") == "b\nc\na\n"


def test_a_record_matches_by_any_header_of_a_name_and_by_all_options(cli: CommandLine, tmp_path: Path) -> None:
    cli.ask("topics", "create", "twice", "twice.dead")
    headers = [{"key": name, "value": value} for name, value in (("origin.topic", "twice"), ("n", "1"), ("n", "2"))]
    path = tmp_path / "lines"
    path.write_text(json.dumps({"value": "a", "headers": headers}))
    cli.ask("produce", "twice.dead", "--json-in", "--file", str(path))

    def matching(*options: str) -> int:
        return sum(int(row[-1]) for row in cli.rows("redrive", "twice.dead", "--dry-run", *options))

    assert matching("--header", "n=1") == 1
    assert matching("--header", "n=2", "--header", "n=1") == 1
    assert matching("--header", "n=3", "--header", "n=2") == 0


def test_all_records_may_go_to_another_topic_and_another_group_reads_them_again(cli: CommandLine) -> None:
    _, dead = dead_letters(cli)
    cli.run("topics", "create", "repaired")
    cli.ask("redrive", dead)
    assert cli.objects("redrive", dead, "--to", "repaired", "--group", "repair")["done"] == [
        {"topic": "repaired", "error": "OSError", "records": 2},
        {"topic": "repaired", "error": "ValueError", "records": 1},
    ]


def test_what_cannot_be_sent_is_explained(cli: CommandLine) -> None:
    _, dead = dead_letters(cli)
    assert "there is no topic" in cli.fails("redrive", "redriven-0.dead")
    assert "there is no topic" in cli.fails("redrive", dead, "--to", "redriven-0")
    assert "--header must be NAME=VALUE, got 'error.class'" in cli.fails(
        "redrive", dead, "--header", "error.class", status=2
    )
    cli.server.call(lambda: cli.server.cluster.produce(dead, b"by hand"))
    assert cli.run("redrive", dead, "--dry-run")[2].endswith(
        "1 have no header origin.topic: leave them out with --header, or send all to a topic with --to\n"
    )
    assert f"of {dead}-0 has no header origin.topic, so no Workers has sent it: leave it out" in cli.fails(
        "redrive", dead
    )
