"""DescribeConfigs: v1-4.

Behaviour
    A topic's settings, or this broker's (its id as the name), all or those named. Each with where its value comes from:
    the topic, the broker's own settings, or the default; on request with every place that could have set it, the
    deciding one first (synonyms), and what it means. A broker's settings are read-only: they are read at its start.
    A broker named "" stands for settings of all brokers at once, of which there are none. What is asked for twice is
    answered once.

Version notes
    v3 has types and documentation (KIP-569); v4 is flexible.

Not here: loggers, client metrics, groups: INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import InvalidRequest, KlogError
from klog.protocol.apis import ApiKey
from klog.server.config_resources import ResourceType, broker_entries, existing_topic, topic_entries
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.DESCRIBE_CONFIGS, 1, 4)
def handle(broker: Broker, request: Request) -> dict[str, Any]:
    with_docs = getattr(request.entity, "include_documentation", False)
    # Each resource once: its answer is hundreds of times as large as its question.
    resources = {(one.resource_type, one.resource_name): one for one in request.entity.resources}
    return {
        "results": [
            _one(broker, resource, with_synonyms=request.entity.include_synonyms, with_docs=with_docs)
            for resource in resources.values()
        ]
    }


def _one(broker: Broker, resource: Any, *, with_synonyms: bool, with_docs: bool) -> dict[str, Any]:
    answer = {
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "error_code": 0,
        "error_message": None,
    }
    try:
        entries = _entries(broker, resource.resource_type, resource.resource_name)
    except KlogError as error:
        return {**answer, "error_code": error.wire, "error_message": error.message, "configs": []}
    wanted = set(resource.configuration_keys or ())
    configs = [
        {
            **entry,
            "synonyms": entry["synonyms"] if with_synonyms else [],
            "documentation": entry["documentation"] if with_docs else None,
        }
        for entry in entries
        if not wanted or entry["name"] in wanted
    ]
    return {**answer, "configs": configs}


def _entries(broker: Broker, kind: int, name: str) -> list[dict[str, Any]]:
    if kind == ResourceType.TOPIC:
        return topic_entries(broker.config, existing_topic(broker, name).overrides)
    if kind == ResourceType.BROKER:
        if name == "":
            return []
        if name != str(broker.broker_id):
            raise InvalidRequest(f"this is broker {broker.broker_id}; ask broker {name!r} for its own settings")
        return broker_entries(broker.config)
    raise InvalidRequest(f"resources of type {kind} have no settings in klog: topics (2) and brokers (4) do")
