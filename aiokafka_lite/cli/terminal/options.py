"""The options that all commands share, and the decorators that add them to a command's own options.

This module imports nothing of the client, so that ``--help`` is fast.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from . import completion
from .connection import ConnectionOptions
from .output import Output
from .run import run

BootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        envvar="AIOKAFKA_LITE_BOOTSTRAP_SERVER",
        help="Bootstrap brokers, separated by commas.  [default: localhost:9092]",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        envvar="AIOKAFKA_LITE_CONFIG",
        help="A .properties or .toml file with properties of Kafka's own clients, including security.",
    ),
]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "-X",
        metavar="NAME=VALUE",
        autocompletion=completion.properties,
        help="A client property, as in -X security.protocol=SSL. Give secrets as env:VARIABLE or file:PATH.",
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        max=2_147_483,  # 2^31 milliseconds, the longest time that requests can carry
        help="Time limit; by default 10 s for requests and changes, delivery.timeout.ms for records.",
    ),
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Print the client's log, and the traceback of an error."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NoHeadings = Annotated[bool, typer.Option("--no-headings", help="Leave out the headings of plain text.")]

ValidateOnly = Annotated[bool, typer.Option("--validate-only", help="Check the request without executing it.")]
"""An option of commands that alter something, not one of the shared options."""


@dataclass(frozen=True, slots=True)
class Shared:
    """The values of the shared options."""

    connection: ConnectionOptions
    output: Output


Command = Callable[..., Awaitable[int]]
"""A function of a ``Shared`` and its own options by name; it returns the exit status."""


def command(
    application: typer.Typer, name: str | None = None, *, examples: str = "", prints_tables: bool = True
) -> Callable[[Command], Callable[..., None]]:
    """Register a command, with the shared options added to its own.

    ``prints_tables`` adds the option ``--no-headings``. ``examples`` are lines for the help text.
    """

    def register(function: Command) -> Callable[..., None]:
        def run_command(
            *,
            bootstrap_server: str | None,
            config: Path | None,
            properties: list[str] | None,
            timeout: float | None,
            verbose: bool,
            as_json: bool,
            no_headings: bool = False,
            **own: Any,
        ) -> None:
            connection = ConnectionOptions(bootstrap_server, config, properties or (), timeout)
            shared = Shared(connection, Output(as_json=as_json, headings=not no_headings))
            raise typer.Exit(run(lambda: function(shared, **own), verbose=verbose))

        run_command.__signature__ = _signature(function, prints_tables)  # type: ignore[attr-defined]
        run_command.__annotations__ = {}
        run_command.__name__ = function.__name__
        application.command(name, help=_help(function, examples), short_help=_short_help(function))(run_command)
        return run_command

    return register


def plain_command(application: typer.Typer, *, examples: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command that has none of the shared options. The function runs everything itself."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        application.command(help=_help(function, examples), short_help=_short_help(function))(function)
        return function

    return register


def _help(function: Callable[..., object], examples: str) -> str:
    text = inspect.getdoc(function) or ""
    if not examples:
        return text
    lines = "\n".join("  " + line for line in inspect.cleandoc(examples).splitlines())
    return f"{text}\n\n\b\nExamples:\n{lines}"


def _short_help(function: Callable[..., object]) -> str:
    """Return the first sentence. Typer's own short help ends after about 45 characters."""
    return re.split(r"(?<=\.)\s", inspect.getdoc(function) or "")[0]


_SHARED: dict[str, tuple[Any, Any]] = {
    "bootstrap_server": (BootstrapServer, None),
    "config": (ConfigFile, None),
    "properties": (Properties, None),
    "timeout": (Timeout, None),
    "verbose": (Verbose, False),
    "as_json": (Json, False),
    "no_headings": (NoHeadings, False),
}


def _signature(function: Callable[..., object], prints_tables: bool) -> inspect.Signature:
    """Return the function's own options, followed by the shared ones."""
    hints = get_type_hints(function, include_extras=True)
    own = list(inspect.signature(function).parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [parameter.replace(annotation=hints[parameter.name], kind=keyword) for parameter in own]
        + [
            inspect.Parameter(name, keyword, default=default, annotation=annotation)
            for name, (annotation, default) in _SHARED.items()
            if prints_tables or name != "no_headings"
        ]
    )
