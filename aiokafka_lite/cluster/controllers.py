"""The controllers of a cluster as the only servers of a client (KIP-919). DescribeCluster takes the place of Metadata.

Controllers know no Metadata request. Their answer has the controllers instead of brokers, and no topics.
"""

from __future__ import annotations

from ..errors import ErrorCode, UnsupportedVersion, error_for
from ..net.connection import Connection
from ..protocol.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataResponse,
    MetadataResponseBroker,
)


async def describe_controllers(connection: Connection, timeout: float) -> MetadataResponse:
    """Ask a controller for the controllers, within ``timeout`` seconds. Their answer has the form of metadata.

    Raises UnsupportedVersion for a broker, and for a controller before Kafka 3.7.
    """
    versions = connection.versions
    versions.require(DescribeClusterRequest.ENDPOINT_TYPE, "bootstrap_controllers")
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=DescribeClusterRequest.CONTROLLERS
    )
    answer: DescribeClusterResponse = await connection.send_nowait(request, timeout=timeout)
    if answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE:
        raise UnsupportedVersion(f"{versions.peer} is a broker: its address belongs in bootstrap_servers")
    if answer.error_code:
        raise error_for(answer.error_code, "the controllers are not described")
    brokers = [
        MetadataResponseBroker(node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)
        for node in answer.brokers
    ]
    return MetadataResponse(
        brokers=brokers, cluster_id=answer.cluster_id, controller_id=answer.controller_id, topics=[]
    )
