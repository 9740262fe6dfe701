"""ApiVersions: what this node speaks.

- v3 is flexible in its body, never in the response's header, and brings the client's name and version (KIP-511).
- A version that is not spoken is answered in v0 with UNSUPPORTED_VERSION; the connection does that, since such a
  request cannot be read. From Kafka 2.4 on that answer names the versions of ApiVersions itself; before, none.
- A client name or version of other characters than letters, digits, ``.`` and ``-`` is an INVALID_REQUEST.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...errors import ErrorCode
from ...protocol.messages import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from ..connection import RequestContext

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def api_versions(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.version >= 3:
        software = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(text) for text in software):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        context.connection.client_software = software
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE, api_keys=context.node.api_versions(), finalized_features_epoch=0
    )


HANDLERS = {ApiVersionsRequest: api_versions}
