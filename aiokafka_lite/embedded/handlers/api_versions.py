"""ApiVersions: the APIs and versions that this broker offers.

- v3 is flexible in its body, but not in the header of its response, and has the client's name and version (KIP-511).
- A request in an unsupported version cannot be parsed, so the connection answers it, in v0 with UNSUPPORTED_VERSION.
  From Kafka 2.4 on that response names the versions of ApiVersions itself; before, it is empty.
- The features of the cluster are tagged fields from v3 on. v4 may have features that begin at level 0.
- A client name or version may contain only letters, digits, ``.`` and ``-``; else the error is INVALID_REQUEST.
"""

from __future__ import annotations

import re

from ...errors import ErrorCode
from ...protocol.messages import ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey
from ..request_context import RequestContext, handles

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest)
def api_versions(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.version >= ApiVersionsRequest.SOFTWARE_NAME:
        software = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(text) for text in software):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    features = context.broker.controller.features
    # v4 may say that a feature begins at level 0. Kafka leaves such features out of v3.
    least = 0 if context.version >= ApiVersionsRequest.FEATURES_FROM_ZERO else 1
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=context.broker.versions.advertised(),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=levels.first, max_version=levels.last)
            for name, levels in features.supported.items()
            if levels.first >= least
        ],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.finalized.items()
        ],
    )
