"""Where a container's port is published and what the broker advertises, and what a test does without an engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytest.importorskip("testcontainers.core.container")

from aiokafka_lite.testing import containers

ADVERTISED = "KAFKA_ADVERTISED_LISTENERS"


class Engine(BaseHTTPRequestHandler):
    """Answers as a container engine that runs nothing."""

    def do_GET(self) -> None:
        body = json.dumps({"ApiVersion": "1.44", "MinAPIVersion": "1.24", "Version": "25", "Os": "linux"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the name that the server calls

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of an engine at another address than the usual one of this machine."""
    server = ThreadingHTTPServer(("127.0.0.2", 0), Engine)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.2:{server.server_port}")
    yield "127.0.0.2"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_container_is_reached_at_the_host_of_its_engine(engine: str) -> None:
    container = containers.KafkaContainer()
    assert container.bootstrap_servers == f"{engine}:{container.port}"
    assert container.env[ADVERTISED].startswith(f"PLAINTEXT://{engine}:{container.port},")
    assert container.ports["9092"] == (engine, container.port)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("host", "bind", "published", "servers"),
    [
        ("docker", None, "0.0.0.0", "docker:20001"),
        ("docker", "10.0.0.7", "10.0.0.7", "docker:20001"),
        ("localhost", None, "127.0.0.1", "127.0.0.1:20001"),
        ("127.0.0.1", None, "127.0.0.1", "127.0.0.1:20001"),
        ("fd00::7", None, "0.0.0.0", "[fd00::7]:20001"),
    ],
)
def test_only_an_engine_on_another_machine_publishes_beyond_the_loopback_interface(
    engine: str, host: str, bind: str | None, published: str, servers: str
) -> None:
    container = containers.KafkaContainer(host=host, bind=bind, port=20001)
    assert container.ports["9092"] == (published, 20001)
    assert container.bootstrap_servers == servers
    assert container.env[ADVERTISED].startswith(f"PLAINTEXT://{servers},")


@pytest.mark.parametrize(
    ("variable", "options", "outcome"),
    [
        ("", (), "1 skipped"),
        ("true", (), "1 error"),
        ("false", (), "1 skipped"),
        ("", ("--kafka-required",), "1 error"),
    ],
)
def test_a_test_without_an_engine_is_skipped_unless_a_container_is_required(
    tmp_path: Path, variable: str, options: tuple[str, ...], outcome: str
) -> None:
    (tmp_path / "test_one.py").write_text("def test_one(kafka_container): pass\n")
    environment = {**os.environ, "CI": variable, "DOCKER_HOST": "tcp://127.0.0.1:1"}
    plugins = ["-p", "no:cacheprovider", "-p", "no:xdist", "-p", "aiokafka_lite.testing.plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "-rs", *plugins, *options, "test_one.py"]
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        env={**environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert outcome in ended.stdout
    assert "no container engine answers" in ended.stdout
    if outcome == "1 error":
        assert "so the test is not skipped" in ended.stdout
