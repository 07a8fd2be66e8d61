"""IncrementalAlterConfigs: v0-1 (KIP-339): sets or removes some of a topic's own settings and keeps the others.

Behaviour
    SET gives the topic a value. DELETE returns the topic to the broker's setting; it succeeds also where the topic does
    not have the setting. APPEND and SUBTRACT add and remove items of a list. A request names a setting once. Each
    resource succeeds or fails alone. A change takes effect at once. The broker refuses changes of a broker's settings,
    because it reads them only at its start; but it accepts the removal of Kafka's replication throttles, which klog
    never has.

Version notes
    v1 is flexible.
"""

from __future__ import annotations

from typing import Any

from klog.config import TOPIC_SETTINGS, BrokerConfig, check_topic_settings, topic_values
from klog.errors import InvalidConfig, InvalidRequest
from klog.protocol.apis import ApiKey
from klog.server.config_resources import KAFKAS_THROTTLES, Operation, alter_topics, given_settings
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, of_controller=True)
async def handle(request: Request, parts: Parts) -> Answer:
    def changed(resource: Any, current: dict[str, str]) -> dict[str, str]:
        changes = [(one.name, one.config_operation, one.value) for one in resource.configs]
        return _changed(parts.config, current, changes)

    return await alter_topics(request, parts, changed)


def _changed(
    config: BrokerConfig, current: dict[str, str], changes: list[tuple[str, int, str | None]]
) -> dict[str, str]:
    """The topic's own settings after ``changes`` of (name, operation, value). Raises InvalidConfig, InvalidRequest."""
    after = dict(current)
    seen: set[str] = set()
    for name, operation, value in changes:
        if name in seen:
            raise InvalidRequest(f"setting {name} is named more than once")
        seen.add(name)
        if operation == Operation.DELETE and name in KAFKAS_THROTTLES:
            continue
        if name not in current and name not in TOPIC_SETTINGS:
            check_topic_settings({name: ""})  # raises, with a similar name as the hint
        match operation:
            case Operation.SET:
                after.update(given_settings([(name, value)]))
            case Operation.DELETE:
                after.pop(name, None)
            case Operation.APPEND | Operation.SUBTRACT:
                after[name] = _changed_list(config, current, name, operation, value)
            case _:
                raise InvalidRequest(f"setting {name}: the operation must be between 0 and 3, got {operation}")
    return after


def _changed_list(config: BrokerConfig, current: dict[str, str], name: str, operation: int, value: str | None) -> str:
    given = given_settings([(name, value)])[name]
    now = next((one for one in topic_values(config, current) if one.name == name), None)
    if now is None or not isinstance(now.value, tuple):
        raise InvalidConfig(f"setting {name} is not a list: items cannot be added to it or removed from it")
    items = [item for item in (part.strip() for part in given.split(",")) if item]
    if operation == Operation.APPEND:
        return ",".join([*now.value, *(item for item in items if item not in now.value)])
    return ",".join(item for item in now.value if item not in items)
