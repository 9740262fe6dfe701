"""ApiVersions: the APIs and versions that this broker offers.

- v3 is flexible in its body, but not in the header of its response, and has the client's name and version (KIP-511).
- A request in an unsupported version cannot be parsed, so the connection answers it, in v0 with UNSUPPORTED_VERSION.
  From Kafka 2.4 on that response names the versions of ApiVersions itself; before, it is empty.
- A client name or version may contain only letters, digits, ``.`` and ``-``; else the error is INVALID_REQUEST.
"""

from __future__ import annotations

import re

from ...errors import ErrorCode
from ...protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from ..handling import RequestContext, handles

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest)
def api_versions(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.version >= ApiVersionsRequest.SOFTWARE_NAME:
        software = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(text) for text in software):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        context.client.client_software = software
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE, api_keys=context.broker.versions.advertised(), finalized_features_epoch=0
    )
