"""ApiVersions: v0-4.

Behaviour
    Answers from the dispatch table. A version above 4 is answered in version 0's form with UNSUPPORTED_VERSION and the
    whole table, so that the client can ask again (KIP-511); `dispatch` sees to that, by calling this with no entity.
    klog's own keys, and versions that only klog's own tools use, are listed only to a client that calls itself
    ``klog``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.protocol import klog_apis
from klog.protocol.apis import OWN_KEYS_FROM, ApiKey
from klog.server.dispatch import ROUTES, Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.API_VERSIONS, 0, 4)
def handle(broker: Broker, request: Request) -> dict[str, Any]:
    name = getattr(request.entity, "client_software_name", None)
    is_own = name == klog_apis.SOFTWARE_NAME
    if name is not None and request.connection is not None:
        request.connection.software = (name, request.entity.client_software_version)
    return {
        "error_code": 35 if request.entity is None else 0,
        "api_keys": [
            {
                "api_key": key,
                "min_version": route.advertised_min_version,
                "max_version": route.max_version if is_own else route.advertised_max_version,
            }
            for key, route in sorted(ROUTES.items())
            if key < OWN_KEYS_FROM or is_own
        ],
    }
