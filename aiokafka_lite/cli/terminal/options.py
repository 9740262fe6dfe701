"""The options that all commands share, and the decorators that add them to a command's own options.

This module imports nothing of the client, so that ``--help`` is fast.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from . import completion
from .connection import ConnectionOptions
from .output import Output
from .refusals import refusals_of
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
BootstrapController = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-controller",
        metavar="HOST:PORT",
        envvar="AIOKAFKA_LITE_BOOTSTRAP_CONTROLLER",
        help="Controllers to ask instead of brokers, separated by commas.",
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
    application: typer.Typer,
    name: str | None = None,
    *,
    examples: str = "",
    prints_tables: bool = True,
    asks_controllers: bool = False,
) -> Callable[[Command], Callable[..., None]]:
    """Register a command, with the shared options added to its own.

    ``prints_tables`` adds the option ``--no-headings``, ``asks_controllers`` adds ``--bootstrap-controller``.
    ``examples`` are lines for the help text.
    """
    optional = {"no_headings": prints_tables, "bootstrap_controller": asks_controllers}
    left_out = {name for name, is_wanted in optional.items() if not is_wanted}

    def register(function: Command) -> Callable[..., None]:
        def run_command(
            *,
            context: typer.Context,
            bootstrap_server: str | None,
            config: Path | None,
            properties: list[str] | None,
            timeout: float | None,
            verbose: bool,
            as_json: bool,
            no_headings: bool = False,
            bootstrap_controller: str | None = None,
            **own: Any,
        ) -> None:
            cluster = context.find_root().params.get("cluster")
            server, controller = _servers(context, bootstrap_server, bootstrap_controller)
            connection = ConnectionOptions(server, config, properties or (), timeout, cluster, controller)
            shared = Shared(connection, Output(as_json=as_json, headings=not no_headings))
            with refusals_of(context.command_path.partition(" ")[2], connection.all_properties):
                status = run(lambda: function(shared, **own), verbose=verbose)
            raise typer.Exit(status)

        run_command.__signature__ = _signature(function, left_out)  # type: ignore[attr-defined]
        run_command.__annotations__ = {}
        run_command.__name__ = function.__name__
        text = _help(function, examples)
        application.command(name, cls=HelpCommand, help=text, short_help=_short_help(function))(run_command)
        return run_command

    return register


def plain_command(
    application: typer.Typer, name: str | None = None, *, examples: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command that has none of the shared options. The function runs everything itself."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        text = _help(function, examples)
        application.command(name, cls=HelpCommand, help=text, short_help=_short_help(function))(function)
        return function

    return register


class HelpCommand(TyperCommand):
    """A command whose help names values by words: NUMBER instead of Typer's ``<int range>`` and ``<list[int]>``."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, each with the word that its help shows for the value."""
        params: list[Any] = super().get_params(ctx)
        for param in params:
            if param.param_type_name == "option" and param.metavar is None and not param.is_flag:
                word = _word(param.display_type(ctx))
                param.metavar = word if param.nargs == 1 else None
        return params

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments without types, because their names say what they are, and the options."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and param.param_type_name == "argument":
                sections["Arguments"].append((_TYPE.sub("", record[0]), record[1]))
            elif record is not None:
                sections["Options"].append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


_TYPE = re.compile(r" <(list\[)?(str|int|file|path)\]?( range)?>$")
_LIST = re.compile(r"<list\[(.*)\]>")
_WORDS = {"<int>": "NUMBER", "<int range>": "NUMBER", "<float>": "NUMBER", "<float range>": "NUMBER"} | {
    "<str>": "NAME",
    "<file>": "FILE",
    "<path>": "PATH",
}


def _word(shown: str) -> str:
    """Return the word for a type as Typer shows it. A choice stays as it is: ``<a|b>``."""
    single = _LIST.sub(r"<\1>", shown)
    return _WORDS.get(single, single)


def _servers(context: typer.Context, server: str | None, controller: str | None) -> tuple[str | None, str | None]:
    """Return the brokers and the controllers, one of them None. An option overrides a variable of the other kind."""
    if server is None or controller is None:
        return server, controller
    sources = {name: context.get_parameter_source(name) for name in ("bootstrap_server", "bootstrap_controller")}
    is_variable = {name: source is not None and source.name == "ENVIRONMENT" for name, source in sources.items()}
    if is_variable["bootstrap_server"] == is_variable["bootstrap_controller"]:
        raise typer.BadParameter("give either --bootstrap-server or --bootstrap-controller, not both", ctx=context)
    return (None, controller) if is_variable["bootstrap_server"] else (server, None)


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
    "bootstrap_controller": (BootstrapController, None),
    "config": (ConfigFile, None),
    "properties": (Properties, None),
    "timeout": (Timeout, None),
    "verbose": (Verbose, False),
    "as_json": (Json, False),
    "no_headings": (NoHeadings, False),
}


def _signature(function: Callable[..., object], left_out: Collection[str]) -> inspect.Signature:
    """Return the function's own options, followed by the shared ones without those ``left_out``."""
    hints = get_type_hints(function, include_extras=True)
    own = list(inspect.signature(function).parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    context = inspect.Parameter("context", keyword, annotation=typer.Context)
    return inspect.Signature(
        [context]
        + [parameter.replace(annotation=hints[parameter.name], kind=keyword) for parameter in own]
        + [
            inspect.Parameter(name, keyword, default=default, annotation=annotation)
            for name, (annotation, default) in _SHARED.items()
            if name not in left_out
        ]
    )
