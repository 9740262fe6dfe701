"""The text of an error in the arguments of a command. It is imported only for such an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .other_tools import counterpart


def text_of(error: Any) -> str:
    """Return the text of an error in the arguments, with the value that was given, or with the option to use."""
    text: str = error.format_message()
    option = getattr(error, "option_name", None)
    # Only the error of an unknown option has both attributes: BadOptionUsage has no possibilities, and NoSuchCommand
    # has no option_name.
    if option is not None and hasattr(error, "possibilities") and error.ctx is not None:
        if any(option in param.opts for command in _below(error.ctx.command) for param in command.params):
            example = f"{error.ctx.command_path} COMMAND {option} ..."
            return f"no such option {option} here; options follow the command, as in {example}"
        options = {option for param in error.ctx.command.params for option in param.opts}
        takes_names = any(param.param_type_name == "argument" for param in error.ctx.command.params)
        if instead := counterpart(option, options, takes_names=takes_names):
            return f"no such option {option}; {instead}"
    # Newer versions of Typer check values with pydantic. Its text has no value ("Input should be ..."), or begins
    # with "Value error, ".
    errors = getattr(error.__cause__, "errors", None)
    if errors is not None and "Input should be" in text:
        return f"{text.partition(',')[0].replace('Input should', 'must')}, got {errors()[0]['input']!r}"
    # A password by position is one argument too many, and other users may read the log of a script.
    if "unexpected extra argument" in text:
        return f"{text.partition(' (')[0]} (not shown, because it may be a secret)"
    return text.rstrip(".").replace("Value error, ", "")


def _below(command: Any) -> Iterator[Any]:
    """Yield the commands of a group of commands, and those of its groups."""
    for subcommand in getattr(command, "commands", {}).values():
        yield subcommand
        yield from _below(subcommand)
