"""AlterConfigs: v0-2: replaces the whole set of a topic's own settings.

Behaviour
    A setting that the request does not name falls back to the broker's setting, as Kafka defines the request. Current
    clients use IncrementalAlterConfigs for this reason. Each resource succeeds or fails alone. A change takes effect at
    once. The broker refuses changes of a broker's settings, because it reads them only at its start.

Version notes
    v2 is flexible. v1 is v0.
"""

from __future__ import annotations

from typing import Any

from klog.protocol.apis import ApiKey
from klog.server.config_resources import alter_topics, given_settings
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.ALTER_CONFIGS, 0, 2, of_controller=True)
async def handle(request: Request, parts: Parts) -> Answer:
    def replaced(resource: Any, current: dict[str, str]) -> dict[str, str]:
        return given_settings((one.name, one.value) for one in resource.configs)

    return await alter_topics(request, parts, replaced)
