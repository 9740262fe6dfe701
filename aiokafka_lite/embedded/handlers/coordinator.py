"""FindCoordinator: which node keeps a group or a transactional id.

- v0 knows groups only, v1 adds the type of key, v4 asks for many keys at once (KIP-699).
- No node keeps groups yet, so that the answer is COORDINATOR_NOT_AVAILABLE, which clients take as "ask again".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import ErrorCode
from ...protocol.messages import FindCoordinatorRequest
from ...protocol.schema import Response
from ..error_responses import error_response

if TYPE_CHECKING:
    from ..connection import RequestContext


def find_coordinator(context: RequestContext, request: FindCoordinatorRequest) -> Response | None:
    return error_response(request, ErrorCode.COORDINATOR_NOT_AVAILABLE, context.version)


HANDLERS = {FindCoordinatorRequest: find_coordinator}
