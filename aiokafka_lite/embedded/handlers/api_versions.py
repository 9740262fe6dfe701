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
from ...protocol import messages as m
from ..request_context import RequestContext, handles

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(m.ApiVersionsRequest)
def api_versions(context: RequestContext, request: m.ApiVersionsRequest) -> m.ApiVersionsResponse:
    if context.version >= m.ApiVersionsRequest.SOFTWARE_NAME:
        software = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(text) for text in software):
            return m.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    features = context.broker.controller.features
    # v4 may say that a feature begins at level 0. Kafka leaves such features out of v3.
    least = 0 if context.version >= m.ApiVersionsRequest.FEATURES_FROM_ZERO else 1
    return m.ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=context.broker.versions.advertised(),
        supported_features=[
            m.SupportedFeatureKey(name=name, min_version=levels.first, max_version=levels.last)
            for name, levels in features.supported.items()
            if levels.first >= least
        ],
        finalized_features_epoch=features.epoch,
        finalized_features=[
            m.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in features.finalized.items()
        ],
    )
