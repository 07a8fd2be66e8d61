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
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from klog.errors import InvalidRequest, KlogError, TopicDeletionDisabled, UnknownTopicId
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, error_fields, handles
from klog.server.handlers.create_topics import mutations
from klog.server.image import ClusterImage
from klog.server.parts import Parts

if TYPE_CHECKING:
    from klog.server.image import TopicImage


STRICT_FROM = 5


class _Asked(NamedTuple):
    name: str | None
    topic_id: UUID | None


@handles(ApiKey.DELETE_TOPICS, 1, 6, of_controller=True)
async def handle(request: Request, parts: Parts) -> Answer:
    quota = mutations(parts.quota_keeper.throttling, request, STRICT_FROM)
    answers = []
    deletions: list[Callable[[], Awaitable[bool]]] = []
    by_id: dict[UUID | None, TopicImage] = {topic.topic_id: topic for topic in parts.image.topics.values()}
    async for asked in request.in_turn(_asked(request)):
        name, outcome = asked.name, error_fields(None)
        try:
            parts.controller.require()
            if not parts.config["delete.topic.enable"]:
                raise _disabled(request.head.version)
            name = _name(parts.image, asked, by_id)
            deletions.append(await parts.controller.topics.delete(name, actor=request.actor, admit=quota.take))
        except KlogError as error:
            outcome = error_fields(error)
        answers.append({"name": name, "topic_id": asked.topic_id, **outcome})
    for deleted in deletions:
        if not await deleted():
            break  # a deletion that takes so long would delay the request once per topic
    return {"throttle_time": quota.throttle_ms(), "responses": answers}


def _asked(request: Request) -> list[_Asked]:
    if request.head.version >= 6:
        return [_Asked(one.name, one.topic_id) for one in request.entity.topics]
    return [_Asked(name, None) for name in request.entity.topic_names]


def _name(image: ClusterImage, asked: _Asked, by_id: Mapping[UUID | None, TopicImage]) -> str:
    if (asked.name is None) == (asked.topic_id is None):
        raise InvalidRequest("a topic to delete must be named by its name or by its id, not by both or neither")
    if asked.name is not None:
        return asked.name
    found = by_id.get(asked.topic_id)
    now = None if found is None else image.topics.get(found.name)  # a new topic may have its name meanwhile
    if now is None or now.topic_id != asked.topic_id:
        raise UnknownTopicId(f"a topic with the id {asked.topic_id} does not exist")
    return now.name


def _disabled(version: int) -> KlogError:
    message = "topics cannot be deleted here: delete.topic.enable is false"
    return TopicDeletionDisabled(message) if version >= 3 else InvalidRequest(message)
