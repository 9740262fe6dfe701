"""``aiokafka-lite users``: list, add and remove the users that log in by SCRAM."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from .terminal.confirm import Yes, ask_hidden, confirmed, listed, read_line, say_done
from .terminal.options import Shared, command
from .terminal.output import Table, show_changes, show_errors
from .terminal.run import FAILED

application = typer.Typer(no_args_is_help=True, help="List, add and remove users that log in by SCRAM.")

HEADINGS = ("USER", "MECHANISM", "ITERATIONS")


class Mechanism(StrEnum):
    """The values of ``--mechanism``."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"


MechanismOption = Annotated[Mechanism, typer.Option(help="Mechanism of the login.")]


@command(application, "list", examples="aiokafka-lite users list alice --json")
async def list_(
    shared: Shared,
    users: Annotated[list[str] | None, typer.Argument(help="Names of users; all users by default.")] = None,
) -> int:
    """List users with their mechanisms. Passwords are not stored, and cannot be shown."""
    async with shared.connection.admin() as admin:
        result = await admin.users.describe(users or None)
    rows = [
        (name, mechanism, iterations)
        for name, credentials in sorted(result.done.items())
        for mechanism, iterations in sorted(credentials.items())
    ]
    if rows or not result.failed or shared.output.as_json:
        shared.output.show(Table(HEADINGS, rows))
    return show_errors(result.failed.values())


@command(
    application,
    examples="""
    aiokafka-lite users add alice
    cat password.txt | aiokafka-lite users add alice --mechanism SCRAM-SHA-256 --iterations 8192
    """,
    asks_controllers=True,
)
async def add(
    shared: Shared,
    user: Annotated[str, typer.Argument(help="Name of the user.")],
    mechanism: MechanismOption = Mechanism.SHA_512,
    iterations: Annotated[
        int, typer.Option(min=4096, max=16384, help="Iterations of the hash. More make it harder to break.")
    ] = 4096,
) -> int:
    """Add a user, or change the password. The password is the first line of stdin; on a terminal, a prompt asks."""
    password = await read_password()
    async with shared.connection.admin() as admin:
        changed = await admin.users.set_passwords({user: password}, mechanism=mechanism.value, iterations=iterations)
    say_done(changed.done, "set the password of")
    done = [(name, mechanism.value, iterations) for name in changed.done]
    return show_changes(shared.output, Table(HEADINGS, done), changed.failed)


@command(application, examples="aiokafka-lite users remove alice bob", asks_controllers=True)
async def remove(
    shared: Shared,
    users: Annotated[list[str], typer.Argument(help="Names of users.")],
    mechanism: MechanismOption = Mechanism.SHA_512,
    yes: Yes = False,
) -> int:
    """Remove users, so that they can no longer log in by the mechanism."""
    if not await confirmed(f"Remove the users {listed(users)} from {mechanism.value}?", yes):
        return FAILED
    async with shared.connection.admin() as admin:
        removed = await admin.users.remove(users, mechanism=mechanism.value)
    say_done(removed.done, "removed")
    done = [(name, mechanism.value) for name in removed.done]
    return show_changes(shared.output, Table(HEADINGS[:2], done), removed.failed)


async def read_password() -> str:
    """Read the password, from a prompt or from stdin. Raises ValueError if there is none or the repetition differs."""
    if sys.stdin.isatty():
        password = await ask_hidden("Password: ")
        if password != await ask_hidden("Repeat for confirmation: "):
            raise ValueError("the two passwords differ; nothing was changed")
    else:
        password = await read_line()
    if not password:
        raise ValueError("users add requires a password on the first line of stdin")
    return password
