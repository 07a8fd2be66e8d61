"""ApiVersions: v0-4.

Behaviour
    Answers from the dispatch table. A version above 4 is answered in version 0's form with UNSUPPORTED_VERSION and the
    whole table, so that the client can ask again (KIP-511): `dispatch` then calls this handler with no entity. Only a
    client that calls itself ``klog`` sees klog's own keys, and the versions that only klog's own tools use.
"""

from __future__ import annotations

from klog.coordination.acts import CLIENT_CHARS_MAX
from klog.protocol import klog_apis
from klog.protocol.apis import OWN_KEYS_FROM, ApiKey
from klog.server.dispatch import ROUTES, Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.API_VERSIONS, 0, 4)
def handle(request: Request, parts: Parts) -> Answer:
    name = getattr(request.entity, "client_software_name", None)
    is_own = name == klog_apis.SOFTWARE_NAME
    if name is not None and request.connection is not None:
        version = request.entity.client_software_version
        request.connection.software = (name[:CLIENT_CHARS_MAX], version[:CLIENT_CHARS_MAX])
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
