"""DescribeConfigs: v1-4.

Behaviour
    A topic's settings, or this broker's (its id as the name): all of them, or those that the request names. Each has
    the source of its value: the topic, the broker's own settings, or the default. On request the answer adds every
    source that could have set it, the deciding one first (synonyms), and its documentation. A broker's settings are
    read-only: the broker reads them at its start. The broker name "" means settings for all brokers at once; klog has
    none. A resource that a request names twice is answered once.

Version notes
    v3 has types and documentation (KIP-569); v4 is flexible.

Not here: loggers, client metrics, groups: INVALID_REQUEST.
"""

from __future__ import annotations

from typing import Any

from klog.errors import InvalidRequest, KlogError
from klog.protocol.apis import ApiKey
from klog.server.config_resources import ResourceType, broker_entries, existing_topic, topic_entries
from klog.server.dispatch import Answer, Request, error_fields, handles
from klog.server.parts import Parts


@handles(ApiKey.DESCRIBE_CONFIGS, 1, 4)
async def handle(request: Request, parts: Parts) -> Answer:
    with_docs = getattr(request.entity, "include_documentation", False)
    # Each resource once: its answer is hundreds of times as large as its name.
    resources = {(one.resource_type, one.resource_name): one for one in request.entity.resources}
    return {
        "results": [
            _one(parts, resource, with_synonyms=request.entity.include_synonyms, with_docs=with_docs)
            async for resource in request.in_turn(resources.values())
        ]
    }


def _one(parts: Parts, resource: Any, *, with_synonyms: bool, with_docs: bool) -> dict[str, Any]:
    answer = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    try:
        entries = _entries(parts, resource.resource_type, resource.resource_name)
    except KlogError as error:
        return {**answer, **error_fields(error), "configs": []}
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
    return {**answer, **error_fields(None), "configs": configs}


def _entries(parts: Parts, kind: int, name: str) -> list[dict[str, Any]]:
    if kind == ResourceType.TOPIC:
        return topic_entries(parts.config.of_topic(name), existing_topic(parts.image, name).overrides)
    if kind == ResourceType.BROKER:
        if name == "":
            return []
        if name != str(parts.identity.broker_id):
            raise InvalidRequest(f"this is broker {parts.identity.broker_id}; ask broker {name!r} for its own settings")
        return broker_entries(parts.config)
    raise InvalidRequest(f"resources of type {kind} have no settings in klog: topics (2) and brokers (4) do")
