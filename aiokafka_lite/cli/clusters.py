"""``aiokafka-lite clusters``: the clusters that the file of clusters names."""

from __future__ import annotations

from typing import Annotated

import typer

from .terminal.clusters import clusters_file, named_clusters
from .terminal.options import plain_command
from .terminal.output import Output, Table
from .terminal.run import run_blocking, say

HELP = "List the clusters that --cluster can name."
application = typer.Typer(no_args_is_help=True, help=HELP)


@application.callback(help=HELP)
def clusters() -> None:
    """Keep ``list`` a command of its own: Typer would make a single command the application itself."""


@plain_command(application, "list", examples="aiokafka-lite clusters list")
def list_(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    no_headings: Annotated[bool, typer.Option("--no-headings", help="Leave out the headings of plain text.")] = False,
) -> None:
    """List the clusters of the file, with their bootstrap brokers.

    No program of the file is run, and no secret is printed. SELECTED is the cluster of --cluster, or of the variable
    AIOKAFKA_LITE_CLUSTER.
    """
    selected = context.find_root().params.get("cluster")
    output = Output(as_json=as_json, headings=not no_headings)
    raise typer.Exit(run_blocking(lambda: _list(output, selected)))


def _list(output: Output, selected: str | None) -> int:
    from .. import disclosure

    path = clusters_file()
    if not path.is_file():
        say(f"there are no clusters: {disclosure.path(str(path))} does not exist")
    rows = [
        (name, properties.get("bootstrap.servers"), properties.get("security.protocol"), name == selected)
        for name, properties in named_clusters(path).items()
    ]
    table = Table(("CLUSTER", "BOOTSTRAP-SERVERS", "SECURITY-PROTOCOL", "SELECTED"), rows)
    if rows or output.as_json:
        output.show(table)
    return 0
