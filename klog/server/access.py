"""Authorizes requests: serves the parts that the principal may use, and refuses the rest.

`klog.security.access_table` has the permissions that each request needs. Brokers that have proved the cluster's secret
may do everything; a broker that forwards a request has checked it before. Produce and Fetch check by themselves
(`Access.refusal`), since their frames are read by hand.

A request with many items lets others run in between (rule P1). Rows removed from an answer, since the principal may not
describe them, are not denials: no event reports them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from klog.errors import InvalidConfig, KlogError, UnknownTopicId
from klog.metrics import Measures
from klog.net.connection import Connection
from klog.protocol import codec
from klog.protocol.apis import ApiKey, api_name
from klog.protocol.entity_fields import element_of
from klog.protocol.klog_apis import REGISTER
from klog.protocol.refusals import refusal
from klog.protocol.versions import response_schema
from klog.security.access_table import (
    CREATE,
    ERRORS,
    RULES,
    TRANSACTION,
    Items,
    Need,
    Needs,
    Rule,
    needs_of_settings,
    topic_of_subject,
)
from klog.security.authorizer import Authorizer, parse_super_users
from klog.security.permissions import CLUSTER, OPERATIONS_NOT_ASKED, Operation, Resource, ResourceType
from klog.server.acl_keeper import AclKeeper
from klog.server.dispatch import Request
from klog.server.event_limits import Repeats
from klog.server.image import ClusterImage
from klog.server.runtime import Runtime

log = logging.getLogger(__name__)

Serve = Callable[[Request], Any]
"""Answers a request: values, an entity, or an awaitable of one."""

COPIED: Final = ("name", "topic", "topic_id", "partition_index", "resource_type", "resource_name", "entity")
"""Fields that an answer's element copies from the request's."""


class _Who(NamedTuple):
    """The principal, its address, and its request."""

    principal: str
    host: str
    request: int


class Denials:
    """Events of denied requests: one for many of the same, and few of all together. Event loop only."""

    def __init__(
        self, tell: Callable[[str, Mapping[str, Any]], None], clock: Callable[[], float], measures: Measures
    ) -> None:
        """``tell`` records an event; ``clock``: seconds."""
        self._measures = measures
        self._tell = tell
        self._clock = clock
        self._repeats: Repeats[tuple[str, Operation, Resource]] = Repeats()

    def note(
        self, principal: str, host: str, operation: Operation, resource: Resource, request: str, rule: str
    ) -> None:
        """A request was denied."""
        self._measures.denied += 1
        before = self._repeats.count((principal, operation, resource), self._clock())
        if before is None:
            return
        facts: dict[str, Any] = {
            "principal": principal,
            "host": host,
            "operation": operation.title,
            "resource": str(resource),
            "request": request,
            "rule": rule,
        }
        if resource.kind in (ResourceType.TOPIC, ResourceType.GROUP):
            facts[resource.kind.name.lower()] = resource.name
        facts |= before
        self._tell("denied", facts)
        log.warning("denied %s of %s at %s: %s %s: %s", request, principal, host, operation.title, resource, rule)


class Access:
    """Event loop only."""

    def __init__(self, runtime: Runtime, image: ClusterImage) -> None:
        """From the broker's settings. Raises InvalidConfig."""
        config = runtime.config
        if config.integer("schema.registry.port"):
            raise InvalidConfig(
                "schema.registry.port: the registry over HTTP knows no users, and authorizer.class.name is set",
                hint="`klog schema serve` serves the registry with a user's own permissions",
            )
        self.authorizer = Authorizer(
            parse_super_users(str(config["super.users"] or "")),
            allow_without_acl=config.flag("allow.everyone.if.no.acl.found"),
        )
        self.acl_keeper = AclKeeper(runtime, self.authorizer)
        self._denials = Denials(runtime.tell_facts, runtime.loop.time, runtime.measures)
        self._image = image
        self._creates_topics = config.flag("auto.create.topics.enable")

    @classmethod
    def of(cls, runtime: Runtime, image: ClusterImage) -> Access | None:
        """None if everybody may do everything (authorizer.class.name). Raises InvalidConfig."""
        return None if runtime.config["authorizer.class.name"] is None else cls(runtime, image)

    def refusal(self, connection: Connection, operation: Operation, topic: str, request: int) -> KlogError | None:
        """The error if the connection's principal may not do that to the topic; brokers may."""
        if connection.is_broker:
            return None
        who = _Who(str(connection.principal), connection.address, request)
        return self._lack(who, (Need(operation, ResourceType.TOPIC),), topic)

    def answer(self, request: Request, serve: Serve) -> Any:
        """As ``serve``, for what the request's principal may do."""
        connection = request.connection
        if connection is None or connection.is_broker:
            return serve(request)
        key = request.head.key
        rule = RULES.get(key)
        who = _Who(str(connection.principal), connection.address, key)
        if rule is None:
            return self._refused(request, self._lack(who, _NOTHING_GRANTS, ""))
        if rule.open and key != ApiKey.DESCRIBE_CLUSTER:
            return serve(request)
        needs, name = _whole(request, rule)
        error = self._lack(who, needs, name) if needs else None
        if not (rule.items or rule.rows or key == ApiKey.DESCRIBE_CLUSTER):
            return serve(request) if error is None else self._refused(request, error)
        return self._answer_parts(request, rule, who, error, serve)

    # --- parts of a request -------------------------------------------------------------------------------------------

    async def _answer_parts(
        self, request: Request, rule: Rule, who: _Who, error: KlogError | None, serve: Serve
    ) -> Any:
        if request.head.key == ApiKey.OFFSET_FETCH and request.head.version >= 8:
            return await self._offsets_of_groups(request, rule, who, serve)
        asked = None if rule.items is None else _asked(request.entity, rule.items)
        if error is not None:
            return await self._all_refused(request, rule, error)
        denied = await self._denied(request, rule, who, asked or ())
        left = [one for number, one in enumerate(asked or ()) if number not in denied]
        if denied:
            assert rule.items is not None
            request = _with(request, rule.items, left)
        if denied and not left and request.head.key != ApiKey.METADATA:
            answer: Any = refusal(response_schema(request.head.key, request.head.version), None)
        else:
            answer = await _come(serve(request))
        lists_all = asked is None or (request.head.key == ApiKey.METADATA and request.head.version == 0 and not left)
        if rule.rows and lists_all:
            answer = await self._shown(request, rule, who, answer, none=bool(denied))
        if denied:
            assert rule.items is not None and asked is not None
            answer = _merged(request, rule.items, answer, asked, denied)
        return await self._with_operations(request, who, answer)

    async def _denied(self, request: Request, rule: Rule, who: _Who, asked: Sequence[Any]) -> dict[int, KlogError]:
        """Number of an item -> its error, for refused items."""
        denied: dict[int, KlogError] = {}
        if rule.items is None or not (rule.each or rule.settings):
            return denied
        async for number, item in request.in_turn(enumerate(asked)):
            name = self._name(item, rule.items)
            is_by_id = request.head.key == ApiKey.DELETE_TOPICS and getattr(item, "name", "") is None
            topic_id = item.topic_id if is_by_id else None
            if name is None and topic_id is None:
                continue  # the handler says what is missing
            if name is None:  # the controller is not asked: it may know the topic, but not the client
                denied[number] = UnknownTopicId(f"a topic with the id {topic_id} does not exist")
                continue
            if request.head.key == ApiKey.READ_SCHEMAS:
                name = topic_of_subject(name)
            needs = needs_of_settings(rule.settings, item) if rule.settings is not None else rule.each
            error = self._lack(who, needs, name)
            if error is not None and topic_id is not None and self._lack(who, _DESCRIBED, name, quietly=True):
                error = type(error)(f"{who.principal} may not {needs[-1].operation.title} topic {topic_id}")
            if error is None and request.head.key == ApiKey.METADATA and self._would_create(request, name):
                error = self._lack(who, CREATE, name)
            if error is not None:
                denied[number] = error
        return denied

    def _would_create(self, request: Request, topic: str) -> bool:
        allowed = bool(getattr(request.entity, "allow_auto_topic_creation", True))
        return allowed and self._creates_topics and self._image.known.is_set() and topic not in self._image.topics

    def _name(self, item: Any, items: Items) -> str | None:
        """The name in an item; None for an item without one, and for an unknown topic id."""
        if not items.name or isinstance(item, str):
            return str(item)
        name = getattr(item, items.name)
        if name is None and (topic_id := getattr(item, "topic_id", None)) is not None:
            return next((one.name for one in self._image.topics.values() if one.topic_id == topic_id), None)
        return None if name is None else str(name)

    async def _shown(self, request: Request, rule: Rule, who: _Who, answer: Any, *, none: bool) -> Any:
        """The answer without rows that may not be described; ``none``: without any."""
        kept = []
        async for row in request.in_turn([] if none else list(_value(answer, rule.rows))):
            name = str(_value(row, rule.row_name))
            if who.request == ApiKey.READ_SCHEMAS:
                name = topic_of_subject(name)
            if self._lack(who, rule.shown, name, quietly=True) is None:
                kept.append(row)
        return _changed(answer, {rule.rows: kept})

    async def _all_refused(self, request: Request, rule: Rule, error: KlogError) -> Any:
        """An answer that refuses everything."""
        schema = response_schema(request.head.key, request.head.version)
        if rule.items is None:
            return refusal(schema, error)
        every = [item for field in rule.items.asked for item in getattr(request.entity, field, None) or ()]
        rows = [_refused_row(schema, rule.items, item, error) async for item in request.in_turn(every)]
        return refusal(schema, error, {rule.items.answered: rows})

    async def _offsets_of_groups(self, request: Request, rule: Rule, who: _Who, serve: Serve) -> Any:
        """OffsetFetch from version 8 on: each group like a separate request."""
        schema = response_schema(request.head.key, request.head.version)
        group_schema = element_of(schema, "groups")
        asked, rows = [], []
        denied_topics: dict[str, tuple[Any, dict[int, KlogError]]] = {}
        async for group in request.in_turn(request.entity.groups):
            error = self._lack(who, rule.whole, group.group_id)
            if error is not None:
                rows.append(refusal(group_schema, error, {"group_id": group.group_id}))
                continue
            denied = await self._denied(request, rule, who, group.topics or ())
            denied_topics[group.group_id] = group.topics, denied
            left = None if group.topics is None else [t for n, t in enumerate(group.topics) if n not in denied]
            asked.append(group if left is None else replace(group, topics=tuple(left)))
        answer: Any = {"groups": []}
        if asked:
            answer = await _come(serve(request._replace(entity=replace(request.entity, groups=tuple(asked)))))
        assert rule.items is not None
        async for found in request.in_turn(_value(answer, "groups")):
            topics, denied = denied_topics[_value(found, "group_id")]
            if topics is None:
                found = await self._shown(request, rule, who, found, none=False)
            elif denied:
                refused = [_refused_row(group_schema, rule.items, topics[n], error) for n, error in denied.items()]
                found = _changed(found, {"topics": [*_value(found, "topics"), *refused]})
            rows.append(found)
        return _changed(answer, {"groups": rows})

    # --- permitted operations -----------------------------------------------------------------------------------------

    async def _with_operations(self, request: Request, who: _Who, answer: Any) -> Any:
        """The answer with the principal's permitted operations (KIP-430), if the request asks for them."""
        if not isinstance(answer, dict):
            return answer
        if getattr(request.entity, "include_cluster_authorized_operations", False):
            may_look = self.authorizer.may(who.principal, who.host, Operation.DESCRIBE, CLUSTER)
            bits = self.authorizer.operations(who.principal, who.host, CLUSTER) if may_look else 0
            answer = {**answer, "cluster_authorized_operations": bits}
        flag, rows, name, field, kind = _OPERATIONS.get(request.head.key, ("", "", "", "", ResourceType.TOPIC))
        if not getattr(request.entity, flag, False):
            return answer
        async for row in request.in_turn(answer.get(rows, ())):
            if row.get(field, OPERATIONS_NOT_ASKED) != OPERATIONS_NOT_ASKED:
                resource = Resource(kind, str(row[name]))
                row[field] = self.authorizer.operations(who.principal, who.host, resource)
        return answer

    # --- below --------------------------------------------------------------------------------------------------------

    def _lack(self, who: _Who, needs: Needs, name: str, *, quietly: bool = False) -> KlogError | None:
        """The error if the principal has none of these permissions; ``quietly``: it was not asked for by name."""
        principal, host, request = who
        for need in needs:
            if need.is_any:
                if self.authorizer.may_any(principal, host, need.operation, need.kind):
                    return None
            else:
                decision = self.authorizer.decide(principal, host, need.operation, need.resource(name))
                if decision.allowed:
                    return None
        need = needs[-1]
        resource = need.resource("*" if need.is_any else name)
        error = ERRORS[need.kind](f"{principal} may not {need.operation.title} {resource}")
        if not quietly:
            rule = self.authorizer.decide(principal, host, need.operation, resource).rule
            self._denials.note(principal, host, need.operation, resource, api_name(request), rule)
        return error

    def _refused(self, request: Request, error: KlogError | None) -> dict[str, Any]:
        return refusal(response_schema(request.head.key, request.head.version), error)


_OPERATIONS: Final[Mapping[int, tuple[str, str, str, str, ResourceType]]] = {
    ApiKey.METADATA: (
        "include_topic_authorized_operations",
        "topics",
        "name",
        "topic_authorized_operations",
        ResourceType.TOPIC,
    ),
    ApiKey.DESCRIBE_GROUPS: (
        "include_authorized_operations",
        "groups",
        "group_id",
        "authorized_operations",
        ResourceType.GROUP,
    ),
}
"""Where an answer has permitted operations: the request's flag for them, its rows, their names, and the field."""
_DESCRIBED: Final = (Need(Operation.DESCRIBE, ResourceType.TOPIC),)
_NOTHING_GRANTS: Final = (Need(Operation.ALL, ResourceType.CLUSTER),)


def _whole(request: Request, rule: Rule) -> tuple[Needs, str]:
    """The permissions for the request as a whole, and their resource."""
    entity, key = request.entity, request.head.key
    if key == ApiKey.FIND_COORDINATOR:
        is_plain = request.head.version < 4 and getattr(entity, "key_type", 0) != TRANSACTION
        return (rule.each, str(entity.key)) if is_plain else ((), "")
    if key == ApiKey.READ_SCHEMAS:
        return (rule.whole if entity.ids or entity.text is not None else ()), ""
    if key == ApiKey.CHANGE_SCHEMAS:
        if not entity.subject:
            return (Need(Operation.ALTER, ResourceType.CLUSTER),), ""
        needs = (Need(Operation.WRITE, ResourceType.TOPIC),) if entity.act == REGISTER else rule.whole
        return needs, topic_of_subject(entity.subject)
    return rule.whole, str(getattr(entity, rule.name, "")) if rule.name else ""


def _asked(entity: Any, items: Items) -> Sequence[Any] | None:
    """The items of a request; None if it has none, or means all."""
    found = [one for one in (getattr(entity, field, None) for field in items.asked) if one is not None]
    return [item for one in found for item in one] if found else None


def _with(request: Request, items: Items, left: Iterable[Any]) -> Request:
    """The request with these items only."""
    field = next(one for one in items.asked if getattr(request.entity, one, None) is not None)
    return request._replace(entity=replace(request.entity, **{field: tuple(left)}))


def _merged(request: Request, items: Items, answer: Any, asked: Sequence[Any], denied: dict[int, KlogError]) -> Any:
    """The answer with the refused items, in the request's order."""
    schema = response_schema(request.head.key, request.head.version)
    refused = {number: _refused_row(schema, items, asked[number], error) for number, error in denied.items()}
    rows = list(_value(answer, items.answered))
    if len(rows) == len(asked) - len(denied):
        others = iter(rows)
        merged = [refused[number] if number in refused else next(others) for number in range(len(asked))]
    else:
        merged = [*rows, *refused.values()]
    return _changed(answer, {items.answered: merged})


def _refused_row(schema: Any, items: Items, item: Any, error: KlogError) -> dict[str, Any]:
    """An element of the answer for a refused item."""
    element = element_of(schema, items.answered)
    if isinstance(item, str | int):
        return refusal(element, error, {items.answered_name: item})
    known = {name: getattr(item, name) for name in COPIED if hasattr(item, name)}
    if items.answered_name and hasattr(item, items.name):
        known[items.answered_name] = getattr(item, items.name)
    if items.inner is not None:
        asked_field, answered_field, index = items.inner
        inner = element_of(element, answered_field)
        known[answered_field] = [
            refusal(inner, error, {index: one if isinstance(one, int) else getattr(one, index)})
            for one in getattr(item, asked_field)
        ]
    return refusal(element, error, known)


def _value(values: Any, field: str) -> Any:
    """A field of an answer, which is values or another broker's entity."""
    return values[field] if isinstance(values, dict) else getattr(values, field)


def _changed(values: Any, change: dict[str, list[Any]]) -> Any:
    """An answer with other rows."""
    if isinstance(values, dict):
        return {**values, **change}
    schema: Any = type(values)
    built = {
        field: tuple(codec.build(element_of(schema, field), row) if isinstance(row, dict) else row for row in rows)
        for field, rows in change.items()
    }
    return replace(values, **built)


async def _come(answer: Any) -> Any:
    return await answer if hasattr(answer, "__await__") else answer
