"""Clusters by name: the properties of a file, with secrets from files, the environment and programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer")

from aiokafka_lite.embedded import Security
from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.embedded.cli.conftest import CommandLine


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "clusters.toml"
    monkeypatch.setenv("AIOKAFKA_LITE_CLUSTERS", str(path))
    return path


@pytest.mark.parametrize("secret", ["file", "env", "command"])
def test_a_cluster_is_used_by_its_name(
    clusters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], secret: str
) -> None:
    (tmp_path / "password").write_text("hunter2")
    monkeypatch.setenv("PASSWORD_OF_PROD", "hunter2")
    value = {
        "file": f"file:{tmp_path / 'password'}",
        "env": "env:PASSWORD_OF_PROD",
        "command": f"command:cat '{tmp_path / 'password'}'",
    }[secret]
    security = Security("SASL_PLAINTEXT", users={"alice": "hunter2"}, mechanisms=["PLAIN"])
    with EmbeddedKafkaServer(security=security) as server:
        clusters.write_text(
            f'[prod]\n"security.protocol" = "SASL_PLAINTEXT"\nsasl.mechanism = "PLAIN"\nsasl.username = "alice"\n'
            f'"sasl.password" = "{value}"\n[other]\n"client.id" = "x"\n'
        )
        cli = CommandLine(server, monkeypatch, capfd)
        cli.ask("--cluster", "prod", "topics", "create", "orders")
        monkeypatch.setenv("AIOKAFKA_LITE_CLUSTER", "prod")
        assert [row[0] for row in cli.rows("topics", "list")] == ["orders"]


def test_the_program_of_a_secret_reads_no_record_of_the_input(
    cli: CommandLine, clusters: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters.write_text('[prod]\n"client.id" = "command:sh -c \'cat > /dev/null; echo me\'"\n')
    cli.ask("topics", "create", "piped")
    before = os.dup(0)
    read_end, write_end = os.pipe()
    os.write(write_end, b"1\n2\n")
    os.close(write_end)
    os.dup2(read_end, 0)
    os.close(read_end)
    try:
        with open(0, closefd=False) as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            cli.ask("--cluster", "prod", "produce", "piped")
    finally:
        os.dup2(before, 0)
        os.close(before)
    assert cli.ask("consume", "piped", "--until", "end") == "1\n2\n"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, "--cluster needs the file"),
        ("[prd]\n", "there is no cluster 'prod' in"),
        ("[prd]\n", "did you mean 'prd'?"),
        ("prod = 5\n", "must be a table, as in [prod]"),
        ('[prod]\nsasl.pasword = "hunter2"\n', "cluster prod: sasl.pasword is not a property"),
        ('[prod]\nsasl.password = "command:false"\n', "the command for sasl.password of the cluster 'prod' ended with"),
        ('[prod]\nsasl.password = "command:true"\n', "printed nothing"),
        ('[prod]\nsasl.password = "command:/no/such/hunter2"\n', "cannot be run: No such file or directory"),
        ("[prod\n", "must be TOML"),
    ],
)
def test_a_wrong_file_is_explained_without_its_secrets(
    cli: CommandLine, clusters: Path, content: str | None, error: str
) -> None:
    if content is not None:
        clusters.write_text(content)
    printed = cli.fails("--cluster", "prod", "topics", "list", status=2)
    assert error in printed
    assert "hunter2" not in printed


def test_options_override_the_cluster(cli: CommandLine, clusters: Path) -> None:
    clusters.write_text('[prod]\nbootstrap.servers = "127.0.0.1:1"\n')
    cli.ask("--cluster", "prod", "topics", "list", "-b", cli.server.bootstrap_servers)


def test_the_clusters_of_the_file_are_listed_without_their_secrets(
    cli: CommandLine, clusters: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.objects("clusters", "list") == []
    clusters.write_text(
        '[prod]\nbootstrap.servers = "kafka-1:9093"\nsecurity.protocol = "SASL_SSL"\nsasl.password = "hunter2"\n'
        '[lab]\n"bootstrap.servers" = "command:no-such-program hunter2"\n'
    )
    monkeypatch.setenv("AIOKAFKA_LITE_CLUSTER", "lab")
    printed = cli.ask("clusters", "list", "--no-headings")
    assert printed.splitlines() == ["prod\tkafka-1:9093\tSASL_SSL\tno", "lab\tcommand:no-such-program ...\t-\tyes"]
    clusters.write_text("[prod")
    assert "must be TOML" in cli.fails("clusters", "list", status=2)
