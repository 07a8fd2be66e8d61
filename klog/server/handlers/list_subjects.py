"""ListSubjects (klog's own, 10041): subjects of the registry of schemas, with their versions, ids and levels.

Behaviour
    Read in ZooKeeper in a thread, each time. Deleted versions are told as well, marked; names that nobody knows are not
    in the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.protocol.schema_errors import code_of, words_of
from klog.server.dispatch import Request, handles

if TYPE_CHECKING:
    from klog.server.broker import Broker


@handles(ApiKey.LIST_SUBJECTS, 0, 0)
async def handle(broker: Broker, request: Request) -> dict[str, Any]:
    names = request.entity.subjects
    try:
        level, subjects = await broker.registry.ask(lambda verbs: (verbs.level(), verbs.subjects(names)))
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
