"""ReadSchemas (klog's own, 10040): schemas by their ids or text, or subjects of the schema registry.

Behaviour
    Each broker reads a schema from ZooKeeper once and then answers from memory: the schema of an id never changes.
    For subjects, a thread reads ZooKeeper for each request. The answer omits what does not exist.
"""

from __future__ import annotations

from typing import Any

from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.protocol.schema_errors import code_of, words_of
from klog.server.dispatch import Answer, Request, handles
from klog.server.parts import Parts


@handles(ApiKey.READ_SCHEMAS, 0, 0)
async def handle(request: Request, parts: Parts) -> Answer:
    asked, done = request.entity, {"error": 0, "error_message": None}
    answer: dict[str, Any] = {**done, "schemas": [], "level": "", "subjects": []}
    try:
        if asked.ids or asked.text is not None:
            found = await parts.registry.schemas(asked.ids, asked.text)
            schemas = [{"id": one.schema_id, "type": one.kind, "schema": one.text} for one in found.values()]
            return {**answer, "schemas": schemas}
        level, subjects = await parts.registry.ask(lambda verbs: (verbs.level(), verbs.subjects(asked.subjects)))
    except KlogError as error:
        return {**answer, "error": code_of(error), "error_message": words_of(error)}
    listed = [
        {
            **done,
            "name": subject.name,
            "level": subject.level,
            "versions": [
                {"version": one.number, "id": one.schema_id, "is_deleted": one.is_deleted} for one in subject.versions
            ],
        }
        for subject in subjects
    ]
    return {**answer, "level": level, "subjects": listed}
