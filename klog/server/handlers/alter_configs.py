"""AlterConfigs: v0-2: the whole set of a topic's own settings, anew.

Behaviour
    What the request does not name falls back to the broker's setting: that is the request's meaning, and why clients
    of today use IncrementalAlterConfigs. Each resource succeeds or fails alone; a change holds at once.
    A broker's settings are read at its start: changing them is refused.

Version notes
    v2 is flexible. v1 is v0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.protocol.apis import ApiKey
from klog.server.config_resources import alter_topics, given_settings
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.ALTER_CONFIGS, 0, 2, of_controller=True)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    def replaced(resource: Any, current: dict[str, str]) -> dict[str, str]:
        return given_settings((one.name, one.value) for one in resource.configs)

    return {"responses": await alter_topics(broker, request.entity, replaced, request.share())}
