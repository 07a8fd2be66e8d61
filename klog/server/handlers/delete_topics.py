"""DeleteTopics: v1-6.

Behaviour
    The controller marks each topic alone, and then waits for the brokers to know it. The deletion waits for
    ``klog.trash.retention.ms``. A client of Kafka's may create a topic of the name at once: this deletes the old one
    first. klog's own command leaves the name taken. The request is refused as a whole where ``delete.topic.enable`` is
    false.

Version notes
    v5 has error messages, and refuses what is beyond the client's quota with THROTTLING_QUOTA_EXCEEDED (KIP-599);
    before, it is deleted, and the client must wait after it. v6 names topics or their ids (KIP-516), not both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID

from klog.errors import InvalidRequest, KlogError, TopicDeletionDisabled, UnknownTopicId
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, error_fields, handles
from klog.server.handlers.create_topics import mutations
from klog.server.image import ClusterImage, TopicImage
from klog.server.parts import Parts

STRICT_FROM = 5


@handles(ApiKey.DELETE_TOPICS, 1, 6, of_controller=True)
async def handle(request: Request, parts: Parts) -> Answer:
    quota, is_by_id = mutations(request, parts, STRICT_FROM), request.head.version >= 6
    answers = []
    deletions: list[Callable[[], Awaitable[bool]]] = []
    by_id: dict[UUID | None, TopicImage] = {topic.topic_id: topic for topic in parts.image.topics.values()}
    async for asked in request.in_turn(request.entity.topics if is_by_id else request.entity.topic_names):
        name, topic_id = (asked.name, asked.topic_id) if is_by_id else (asked, None)
        outcome = error_fields(None)
        try:
            parts.controller.require()
            if not parts.config["delete.topic.enable"]:
                refusal = TopicDeletionDisabled if request.head.version >= 3 else InvalidRequest
                raise refusal("topics cannot be deleted here: delete.topic.enable is false")
            name = _name(parts.image, name, topic_id, by_id)
            deletions.append(await parts.controller.topics.delete(name, actor=request.actor, admit=quota.take))
        except KlogError as error:
            outcome = error_fields(error)
        answers.append({"name": name, "topic_id": topic_id, **outcome})
    for deleted in deletions:
        if not await deleted():
            break  # a deletion that takes so long would delay the request once per topic
    return {"throttle_time": quota.throttle_ms(), "responses": answers}


def _name(image: ClusterImage, name: str | None, topic_id: UUID | None, by_id: Mapping[UUID | None, TopicImage]) -> str:
    if (name is None) == (topic_id is None):
        raise InvalidRequest("a topic to delete must be named by its name or by its id, not by both or neither")
    if name is not None:
        return name
    found = by_id.get(topic_id)
    now = None if found is None else image.topics.get(found.name)  # a new topic may have its name meanwhile
    if now is None or now.topic_id != topic_id:
        raise UnknownTopicId(f"a topic with the id {topic_id} does not exist")
    return now.name
