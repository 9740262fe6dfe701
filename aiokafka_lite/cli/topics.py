"""``aiokafka-lite topics``: create, list, describe, alter and delete topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .terminal import completion
from .terminal.arguments import names_and_values, setting_changes
from .terminal.confirm import Yes, confirmed, listed, say_done
from .terminal.options import Shared, ValidateOnly, command
from .terminal.output import VALIDATED, Cell, Table, show_changes, show_errors
from .terminal.refusals import explained_refusal
from .terminal.run import FAILED, say, with_options
from .terminal.setting_names import explained_settings

if TYPE_CHECKING:
    from ..admin import Admin, Setting
    from ..errors import KafkaError

application = typer.Typer(no_args_is_help=True, help="Create, list, describe, alter and delete topics.")

Topics = Annotated[list[str], typer.Argument(autocompletion=completion.topics, help="Names of topics.")]
NewTopics = Annotated[list[str], typer.Argument(help="Names of topics.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        autocompletion=completion.assignments,
        help="A setting of the topic. May be repeated.",
    ),
]


@command(
    application,
    examples="""
    aiokafka-lite topics create orders --partitions 12 --replicas 3
    aiokafka-lite topics create audit --set cleanup.policy=compact --set retention.ms=86400000
    aiokafka-lite topics create pinned --assignment 1,2/2,3
    """,
    asks_controllers=True,
)
async def create(
    shared: Shared,
    topics: NewTopics,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="Number of partitions; by default the broker's.")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option("--replicas", "-r", min=1, help="Replicas per partition; by default the broker's.")
    ] = None,
    assignment: Annotated[
        str | None, typer.Option(metavar="1,2/2,3", help="Brokers of each partition, the preferred leader first.")
    ] = None,
    settings: Settings = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Accept topics that exist.")] = False,
    validate_only: ValidateOnly = False,
) -> int:
    """Create topics."""
    from ..admin import NewTopic

    if assignment is not None and (partitions, replicas) != (None, None):
        raise ValueError("--assignment excludes --partitions and --replicas: it names the replicas of each partition")
    assignments = None if assignment is None else parse_assignment(assignment)
    configs = names_and_values("set", settings or ())
    new_topics = [NewTopic(name, partitions, replicas, assignments, configs) for name in dict.fromkeys(topics)]
    async with shared.connection.admin() as admin:
        created = await admin.topics.create(new_topics, validate_only=validate_only)
    rows = [
        (
            topic.name,
            topic.partitions,
            topic.replication_factor,
            None if topic.topic_id is None else str(topic.topic_id),
        )
        for topic in created.done.values()
    ]
    failed = explained_settings(created.failed, "topic", configs)
    failed = _without(failed, "TOPIC_ALREADY_EXISTS" if if_not_exists else None)
    table = Table(("TOPIC", "PARTITIONS", "REPLICAS", "TOPIC-ID"), rows)
    return show_changes(shared.output, table, failed, as_table=True, dry_run=VALIDATED if validate_only else "")


@command(application, "list", examples="aiokafka-lite topics list --json")
async def list_(
    shared: Shared,
    internal: Annotated[bool, typer.Option("--internal", help="List Kafka's internal topics as well.")] = False,
) -> int:
    """List topics."""
    async with shared.connection.admin() as admin:
        topics = await admin.topics.list(internal=internal)
    rows = [
        (topic.name, topic.partitions, topic.is_internal, None if topic.topic_id is None else str(topic.topic_id))
        for topic in topics
    ]
    shared.output.show(Table(("TOPIC", "PARTITIONS", "INTERNAL", "TOPIC-ID"), rows))
    return 0


@command(application, examples="aiokafka-lite topics describe orders")
async def describe(shared: Shared, topics: Topics) -> int:
    """Describe topics: leader, replicas and in-sync replicas of each partition, and settings that are not defaults."""
    from .terminal.topic_names import explained

    async with shared.connection.admin() as admin:
        result = await admin.topics.describe(topics)
        failed = await explained(admin, result.failed)
        settings = await _changed_settings(admin, [topic.name for topic in result.done.values()])
    rows: list[tuple[Cell, ...]] = [
        (
            topic.name,
            partition.partition,
            partition.leader,
            partition.leader_epoch,
            partition.replicas,
            partition.in_sync,
            partition.offline,
        )
        for topic in result.done.values()
        for partition in topic.partitions
    ]
    headings = ("TOPIC", "PARTITION", "LEADER", "LEADER-EPOCH", "REPLICAS", "IN-SYNC", "OFFLINE")
    if rows or shared.output.as_json:
        parts = {"partitions": Table(headings, rows)}
        if settings or shared.output.as_json:
            parts["settings"] = Table(("TOPIC", "SETTING", "VALUE", "SOURCE"), settings)
        shared.output.show_all(parts)
    return show_errors(failed.values())


async def _changed_settings(admin: Admin, topics: list[str]) -> list[tuple[Cell, ...]]:
    """Return the settings of topics that differ from Kafka's defaults. If they cannot be read, say why on stderr."""
    from ..admin import ConfigResource, ConfigSource

    if not topics:
        return []
    described = await admin.configs.describe([ConfigResource.topic(name) for name in topics])
    for error in described.failed.values():
        say(with_options(f"settings are not shown: {explained_refusal(error)}"))
    return [
        (resource.name, setting.name, setting.value, setting.source.name.lower().replace("_", "-"))
        for resource, settings in sorted(described.done.items(), key=lambda item: item[0].name)
        for setting in sorted(settings.values(), key=lambda setting: setting.name)
        if setting.source is ConfigSource.TOPIC or (not setting.is_default and setting.value != _default(setting))
    ]


def _default(setting: Setting) -> str | None:
    """Return Kafka's own default. A broker may set the same value in its properties."""
    return next((synonym.value for synonym in setting.synonyms if synonym.source.name == "DEFAULT"), None)


@command(
    application,
    examples="""
    aiokafka-lite topics alter orders --partitions 24
    aiokafka-lite topics alter orders --set retention.ms=3600000 --unset cleanup.policy
    """,
)
async def alter(
    shared: Shared,
    topics: Topics,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, help="New total of partitions. Keys may change their partition."),
    ] = None,
    settings: Settings = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            autocompletion=completion.settings,
            help="Reset a setting to its default. May be repeated.",
        ),
    ] = None,
    validate_only: ValidateOnly = False,
) -> int:
    """Add partitions to topics, or change their settings."""
    from ..admin import ConfigResource
    from .terminal.topic_names import explained

    changes = setting_changes(settings or (), unset or ())
    if partitions is None and not changes:
        raise ValueError("topics alter requires --partitions, --set or --unset")
    rest = list(dict.fromkeys(topics))
    changed: dict[str, tuple[str, int | None, list[str]]] = {}
    failed: dict[str, KafkaError] = {}
    async with shared.connection.admin() as admin:
        if partitions is not None:
            added = await admin.topics.add_partitions(dict.fromkeys(rest, partitions), validate_only=validate_only)
            failed = await explained(admin, added.failed)
            rest = list(added.done)
            changed = {name: (name, partitions, []) for name in rest}
            say_done([] if validate_only else rest, "added partitions to")
        if changes and rest:
            resources = {ConfigResource.topic(name): changes for name in rest}
            altered = await admin.configs.alter(resources, validate_only=validate_only)
            errors = explained_settings(await explained(admin, altered.failed), "topic", changes)
            failed |= {resource.name: error for resource, error in errors.items()}
            for resource in altered.done:
                changed.setdefault(resource.name, (resource.name, None, []))[2].extend(changes)
            say_done([] if validate_only else altered.done, "changed the settings of")
    table = Table(("TOPIC", "PARTITIONS", "SETTINGS"), list(changed.values()))
    return show_changes(shared.output, table, failed, dry_run=VALIDATED if validate_only else "")


@command(application, examples="aiokafka-lite topics delete orders audit")
async def delete(
    shared: Shared,
    topics: Topics,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Accept topics that do not exist.")] = False,
    yes: Yes = False,
) -> int:
    """Delete topics with all their records."""
    from .terminal.topic_names import explained

    if not await confirmed(f"Delete the topics {listed(topics)} with all their records?", yes):
        return FAILED
    async with shared.connection.admin() as admin:
        deleted = await admin.topics.delete(topics)
        failed = await explained(admin, _without(deleted.failed, "UNKNOWN_TOPIC_OR_PARTITION" if if_exists else None))
    say_done(deleted.done, "deleted")
    return show_changes(shared.output, Table(("TOPIC",), [(str(name),) for name in deleted.done]), failed)


def parse_assignment(text: str) -> list[list[int]]:
    """Parse the brokers of each partition in ``1,2/2,3``. Raises ValueError for any other form."""
    try:
        return [[int(number) for number in part.split(",")] for part in text.split("/")]
    except ValueError:
        form = "broker ids with commas, and partitions with slashes, as in 1,2/2,3"
        raise ValueError(f"--assignment must be {form}, got {text!r}") from None


def _without(failed: Mapping[Any, KafkaError], accepted: str | None) -> dict[Any, KafkaError]:
    """Return the errors that do not have the accepted error code; all errors if it is None."""
    from ..errors import BrokerError

    return {
        name: error
        for name, error in failed.items()
        if not (isinstance(error, BrokerError) and error.code.name == accepted)
    }
