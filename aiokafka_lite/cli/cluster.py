"""``aiokafka-lite cluster``: the brokers, controller and features of the cluster."""

from __future__ import annotations

from ..admin import Admin, ClusterDescription
from ..errors import UnsupportedVersion
from .terminal.connection import ConnectionOptions
from .terminal.output import Cell, Facts, Output, Part, Table, show_errors


async def cluster(connection: ConnectionOptions, output: Output, versions: bool) -> int:
    """Show brokers, controller and features, and on request the API versions of the brokers."""
    async with connection.admin() as admin:
        description = await admin.cluster.describe()
        parts: dict[str, Part] = {
            "cluster": facts_of(description),
            "brokers": _brokers(description),
        }
        features = await _features(admin)
        if features or output.as_json:
            parts["features"] = Table(("FEATURE", "FINALIZED", "SUPPORTED-FROM", "SUPPORTED-TO"), features)
        if not versions:
            output.show_all(parts)
            return 0
        answered = await admin.cluster.api_versions()
    rows: list[tuple[Cell, ...]] = [
        (node_id, api.name or str(api.key), api.offered.first, api.offered.last, api.used)
        for node_id, apis in sorted(answered.done.items())
        for api in apis
    ]
    parts["versions"] = Table(("BROKER", "API", "FROM", "TO", "USED"), rows)
    output.show_all(parts)
    return show_errors(answered.failed.values())


def facts_of(description: ClusterDescription) -> Facts:
    """Return the id of the cluster, and of its controller."""
    controller = description.controller
    return Facts(
        {"cluster_id": description.cluster_id, "controller": None if controller is None else controller.node_id}
    )


def _brokers(description: ClusterDescription) -> Table:
    rows = [
        (node.node_id, node.host, node.port, node.rack, node == description.controller) for node in description.brokers
    ]
    return Table(("BROKER", "HOST", "PORT", "RACK", "CONTROLLER"), rows)


async def _features(admin: Admin) -> list[tuple[Cell, ...]]:
    """Ask for the features. A cluster that is too old to have features has none."""
    try:
        features = await admin.cluster.features()
    except UnsupportedVersion:
        return []
    return [
        (name, finalized.last if (finalized := features.finalized.get(name)) else None, supported.first, supported.last)
        for name, supported in sorted(features.supported.items())
    ]
