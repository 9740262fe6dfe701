"""The commands and their options. What a command does is in a module of its own, imported when the command runs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

application = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _version(wanted: bool) -> None:
    if wanted:
        from aiokafka_lite.version import VERSION

        print(f"aiokafka-lite {VERSION}")
        raise typer.Exit


@application.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """An asyncio-native Kafka client, and an embedded broker."""


@application.command()
def demo(
    bootstrap_server: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Any Kafka; an embedded three-node cluster by default.")
    ] = None,
    records: Annotated[int, typer.Option(min=1, help="How many records make the trip.")] = 100_000,
) -> None:
    """Send records through the whole client into Kafka, read them all back, and check every one."""
    from aiokafka_lite.cli.demo import run_demo

    _exit_with(lambda: run_demo(bootstrap_server, records))


@application.command()
def broker(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the first node; 0 for any.")] = 9092,
    brokers: Annotated[int, typer.Option(min=1, max=64, help="How many nodes, on the following ports.")] = 1,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of a topic that is created by its first use.")] = 1,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:PARTITIONS[:REPLICAS]]", help="A topic to begin with; may be given more than once."
        ),
    ] = None,
    as_kafka: Annotated[
        str | None, typer.Option(metavar="RELEASE", help="Speak the versions of a release of Kafka, such as 2.8.")
    ] = None,
) -> None:
    """Run the embedded cluster on the loopback interface until Ctrl-C. It keeps everything in memory."""
    from aiokafka_lite.cli.broker import run_broker

    _exit_with(lambda: run_broker(port, brokers, partitions, topic or [], as_kafka))


def _exit_with(command: object) -> None:
    """Run a command; an error of the network or of the settings is one line, not a traceback."""
    from aiokafka_lite.errors import KafkaError

    assert callable(command)
    try:
        status = command()
    except (KafkaError, OSError) as error:
        status = f"aiokafka-lite: {error}"
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
