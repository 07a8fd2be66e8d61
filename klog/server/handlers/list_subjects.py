"""ListSubjects (klog's own, 10041): subjects of the schema registry, with their versions, ids and levels.

Behaviour
    A thread reads ZooKeeper for each request. The answer includes deleted versions, marked as such, and omits unknown
    names.
"""

from __future__ import annotations

from typing import Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.protocol.schema_errors import code_of, words_of
from klog.server.dispatch import Request, handles
from klog.server.schema_registry import BrokerRegistry


@handles(ApiKey.LIST_SUBJECTS, 0, 0)
async def handle(request: Request, *, registry: BrokerRegistry) -> dict[str, Any]:
    names = request.entity.subjects
    try:
        level, subjects = await registry.ask(lambda verbs: (verbs.level(), verbs.subjects(names)))
    except KlogError as error:
        return {"error": code_of(error), "error_message": words_of(error), "level": "", "subjects": []}
    return {
        "error": 0,
        "error_message": None,
        "level": level,
        "subjects": [
            {
                "name": subject.name,
                "level": subject.level,
                "versions": [
                    {"version": one.number, "id": one.schema_id, "is_deleted": one.is_deleted}
                    for one in subject.versions
                ],
            }
            for subject in subjects
        ],
    }
