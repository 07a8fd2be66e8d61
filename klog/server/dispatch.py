"""Dispatches each request frame to its handler, and its answer back.

Handlers register themselves here, one file per API key in `klog.server.handlers`; ApiVersions answers from the same
table. There are two sorts:

* One gets the decoded entity and returns the answer's values as a dict, at once or from a coroutine; the codec builds
  the entity of the request's version from it.
* One that ``takes_frames`` gets the frame and fills the reply itself, for Produce and Fetch, whose record bytes must
  not be copied. It may return a coroutine that goes on with the request.

Each also gets the broker's parts (`klog.server.parts.Parts`). A handler that keeps state is a class, made once with the
parts.

Handlers run on the event loop. Threads decode long requests of clients and encode long answers.

A request that cannot be decoded raises PeerError: the broker closes the connection, and its log names the peer. An
unknown version of ApiVersions is answered in version 0's form instead: clients learn the supported versions from it
(KIP-511).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from klog.coordination.acts import CLIENT_CHARS_MAX, OF_CLUSTER, Actor
from klog.errors import ClusterAuthorizationFailed, KlogError, PeerError, RequestTimedOut, UnsupportedVersion
from klog.metrics import RequestMeter
from klog.net.connection import Connection, Part, Reply
from klog.net.turns import ConnectionEnded, Share
from klog.protocol import codec
from klog.protocol.apis import ApiKey, api_name
from klog.protocol.bounds import ELEMENTS_MAX, TRUSTED_ELEMENTS_MAX, TooManyElements
from klog.protocol.codec import RequestHead
from klog.protocol.refusals import refusal
from klog.protocol.versions import response_schema
from klog.security.principal import ANONYMOUS
from klog.server import unsupported_requests
from klog.server.executors import Executors, Purpose
from klog.server.request_slots import LongRequests, RequestSlots, WaitsFor
from klog.server.runtime import CLIENT_ID_PREFIX
from klog.server.throttling import MeteredReply, Throttling

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOP_ELEMENTS_MAX = 2_000
"""An answer of more elements is encoded in a thread: some 8 us per element."""
HELD_BYTES_MAX = 4 * 1024
"""While a larger request of a `waits` route is open, or a second JoinGroup, its connection is not read: each JoinGroup
may make a member. While any other request is open, its connection is not read anyway."""
FORWARDED_ELEMENTS_MAX = 20_000
"""A longer request is not forwarded, since this broker would encode it and the controller decode it on their event
loops. The answer is NOT_CONTROLLER, after which clients ask the controller."""


ASKED_AGAIN = frozenset(key for key in ApiKey if api_name(key).startswith(("Metadata", "Describe", "List")))
"""Read-only requests. A long answer that must wait is not kept but made again."""


class Request(NamedTuple):
    """``connection``: None for the broker's own requests."""

    head: RequestHead
    entity: Any
    connection: Connection | None

    @property
    def peer(self) -> str:
        return "this broker" if self.connection is None else self.connection.peer

    @property
    def listener(self) -> str:
        """Through which the client asks; "" for the broker's own requests."""
        return "" if self.connection is None else self.connection.listener

    @property
    def actor(self) -> Actor:
        """Who asks: for a forwarded request the client that the broker names (`forwarding_client`)."""
        client = self.head.client_id or ""
        if self.connection is None:
            return Actor(client or "controller", OF_CLUSTER)  # for the topic of events; no client sees it
        if self.connection.is_broker and FORWARDED in client:
            return _forwarded(client.partition(FORWARDED)[2])
        principal = "" if self.connection.principal is ANONYMOUS else str(self.connection.principal)
        return Actor(client, self.connection.address, principal, self.head.correlation_id)

    @property
    def is_of_client(self) -> bool:
        """Whether a client asks, directly or forwarded by a broker."""
        if self.connection is None:
            return False
        return not self.connection.is_broker or FORWARDED in (self.head.client_id or "")

    def share(self) -> Share:
        """For a handler with many items of work: lets other requests run in between."""
        if self.connection is None:
            return Share(None)
        connection = self.connection
        return Share(connection.turns, connection.address, has_ended=functools.partial(getattr, connection, "closed"))

    def in_turn(self, items: Iterable[T]) -> AsyncIterator[T]:
        """The items; lets other requests run in between."""
        return self.share().each(items)


FORWARDED = " for "
"""Separates a broker's own client id from that of the client for which it asks."""


def forwarding_client(own: str, actor: Actor) -> str:
    """The client id under which a broker forwards a request: ``klog-broker-1 for CLIENT@User:alice@HOST#17``.

    17 is the correlation id of the client's request. The principal is percent-encoded, "" where the client has shown
    none. A client id on the wire has at most 32 KB, which the client's own may fill: of that it has the beginning.
    """
    principal = quote(actor.principal[:CLIENT_CHARS_MAX], safe=":=, ")
    request = "" if actor.request is None else f"#{actor.request}"
    return f"{own}{FORWARDED}{actor.client[:CLIENT_CHARS_MAX]}@{principal}@{actor.host}{request}"


def _forwarded(text: str) -> Actor:
    """The client in a forwarded client id: the part after `FORWARDED`."""
    rest, _, host = text.rpartition("@")
    host, _, number = host.partition("#")
    # An older broker names no request, and before that no principal.
    request = int(number) if number.removeprefix("-").isdecimal() else None
    client, at, principal = rest.rpartition("@")
    return Actor(client, host, unquote(principal), request) if at else Actor(rest, host, "", request)


Answer = dict[str, Any]
"""The values of a response. A handler that passes on another broker's answer returns the unchanged entity."""


def error_fields(error: KlogError | None) -> dict[str, Any]:
    """Error code and message, as fields of an answer."""
    if error is None:
        return {"error_code": 0, "error_message": None}
    return {"error_code": error.wire, "error_message": error.message}


async def outcome(work: Awaitable[object]) -> dict[str, Any]:
    """Await a part of a request that succeeds or fails alone; its `error_fields`."""
    try:
        await work
    except KlogError as error:
        return error_fields(error)
    return error_fields(None)


Handler = Callable[..., Any]
"""``(Request, parts) -> Answer``, or an awaitable of one.

One that takes frames: ``(RequestHead, memoryview, Reply, Connection, parts) -> Coroutine | None``.
"""
AnyHandler = TypeVar("AnyHandler", bound=Handler)


class Route(NamedTuple):
    key: int
    min_version: int
    max_version: int
    handle: Handler
    advertised_min_version: int
    """Below ``min_version`` where clients must see an old version that the broker refuses (Produce)."""
    advertised_max_version: int
    """Below ``max_version`` where later versions are for klog's own tools and would change what stock clients do."""
    takes_frames: bool = False
    of_controller: bool = False
    """Controller-only: other brokers forward it to the controller."""
    waits: bool = False
    """It waits by its nature, for members of a group or for a password's delay: the connection is read meanwhile."""
    of_brokers: bool = False
    """Among brokers: a connection without proof of the cluster's secret is refused (rule R10), undecoded."""
    may_refuse: bool = False
    """The handler raises a KlogError to refuse the request: the answer has its code and message, and empty fields.
    Answers without an error get the code 0."""


ROUTES: dict[int, Route] = {}
"""key -> route. Filled by the handlers' modules at import, never changed afterwards."""


def handles(
    key: ApiKey,
    min_version: int,
    max_version: int,
    *,
    advertised_min_version: int | None = None,
    advertised_max_version: int | None = None,
    **flags: bool,
) -> Callable[[AnyHandler], AnyHandler]:
    """Register a handler for versions ``min_version`` to ``max_version``; ``flags``: those of `Route`."""
    advertised = (
        min_version if advertised_min_version is None else advertised_min_version,
        max_version if advertised_max_version is None else advertised_max_version,
    )

    def register(handle: AnyHandler) -> AnyHandler:
        ROUTES[key] = Route(key, min_version, max_version, handle, *advertised, **flags)
        return handle

    return register


def _answered(handle: Handler, request: Request) -> Any:
    """The values of the answer, with the handler's error, or none."""
    try:
        values = handle(request)
    except KlogError as error:
        return _refused(request.head, error)
    return {**error_fields(None), **values} if isinstance(values, dict) else _answered_later(values, request.head)


async def _answered_later(values: Awaitable[Answer], head: RequestHead) -> Answer:
    try:
        return {**error_fields(None), **await values}
    except KlogError as error:
        return _refused(head, error)


def _refused(head: RequestHead, error: KlogError) -> Answer:
    return refusal(response_schema(head.key, head.version), error)


class BoundRoutes(dict[int, Route]):
    """Routes with their handlers bound to the parts of one broker. Empty until `bind`."""

    def bind(self, routes: Mapping[int, Route], parts: object) -> None:
        """Bind each handler to the parts of one broker; one that is a class is made with them."""
        for key, route in routes.items():
            is_class = inspect.isclass(route.handle)
            handle = route.handle(parts) if is_class else functools.partial(route.handle, parts=parts)
            if route.may_refuse:
                handle = functools.partial(_answered, handle)
            self[key] = route._replace(handle=handle)

    async def answer(self, entity: Any) -> Any:
        """This broker's answer to its own request; neither is encoded."""
        key, version = int(entity.__api_key__), int(entity.__version__)
        values = await _ready(self[key].handle(Request(RequestHead(key, version, 0, None, 0), entity, None)))
        return codec.response(key, version, **values) if isinstance(values, dict) else values


class Forwarding:
    """Forwards controller-only requests to the controller, once: a broker that is not the controller refuses a
    forwarded request."""

    def __init__(
        self, is_controller: Callable[[], bool], ask: Callable[..., Awaitable[Any]], own_client_id: str
    ) -> None:
        """``ask``: asks the controller; raises KlogError where it cannot be reached."""
        self._is_controller = is_controller
        self._ask = ask
        self._own_client_id = own_client_id

    def is_needed(self, client_id: str | None) -> bool:
        """Whether this broker must forward a request with that client id."""
        return not self._is_controller() and not (client_id or "").startswith(CLIENT_ID_PREFIX)

    async def ask(self, entity: Any, actor: Actor) -> Any | None:
        """The controller's answer to the request of ``actor``; None where it cannot be reached."""
        try:
            return await self._ask(entity, client_id=forwarding_client(self._own_client_id, actor))
        except KlogError:
            return None


Permits = Callable[[Request, Callable[[Request], Any]], Any]
"""Checks a request's permissions (`klog.server.access`) and calls the function for what is permitted. Returns the
values of the answer, or an awaitable of them."""


class OpenRequests:
    """Requests whose handlers have returned and whose work goes on. Event loop only."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def follow(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work``, the rest of a request; it raises nothing."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self, timeout_s: float) -> None:
        """Wait for open requests at a controlled shutdown, for ``timeout_s`` at most."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)


class TimedReply(Reply):
    """A reply that measures the times of its request."""

    __slots__ = ("_began_s", "_handled_s", "_inner", "_is_filled", "_meter", "_sent_from_s")

    def __init__(self, connection: Connection, inner: Reply, meter: RequestMeter) -> None:
        super().__init__(connection)
        self._inner = inner
        self._meter = meter
        meter.choose_next()
        self._began_s = time.perf_counter()
        self._handled_s: float | None = None
        self._is_filled = False
        self._sent_from_s = 0.0
        meter.queued.took(max(0.0, time.monotonic() - connection.received_s) * 1000)

    def send(self, *parts: Part) -> None:
        now_s = time.perf_counter()
        self._meter.total.took((now_s - self._began_s) * 1000)
        self._is_filled = True
        if self._handled_s is not None:
            self._meter.remote.took((now_s - self._handled_s) * 1000)
        self._sent_from_s = now_s
        self._connection.sending.append(self._is_sent)
        self._inner.send(*parts)

    def _is_sent(self, waiting: Collection[Reply]) -> bool:
        if self._inner in waiting:
            return False
        self._meter.sent.took((time.perf_counter() - self._sent_from_s) * 1000)
        return True

    def handled(self) -> None:
        """The handler has returned; the rest of the time is waiting."""
        self._handled_s = time.perf_counter()
        self._meter.local.took((self._handled_s - self._began_s) * 1000)
        if self._is_filled:
            self._meter.remote.took(0.0)


class _Call:
    """A request to a handler of decoded requests, until it is answered."""

    __slots__ = ("connection", "head", "is_paused", "reply", "route", "slots")

    def __init__(self, route: Route, head: RequestHead, reply: Reply, connection: Connection) -> None:
        self.route = route
        self.head = head
        self.reply = reply
        self.connection = connection
        self.slots: RequestSlots | None = None
        """Of which it has one until it is answered; requests of brokers, and those that wait by nature, need none."""
        self.is_paused = False
        """Whether the connection is not read until then."""

    def leave_slot(self) -> None:
        if self.slots is not None:
            self.slots.leave(self.connection.address, self.connection.turns)


class Dispatcher:
    """Gives each frame to its handler. Event loop only."""

    def __init__(
        self,
        routes: Mapping[int, Route],
        *,
        executors: Executors,
        meters: dict[int, RequestMeter],
        open_requests: OpenRequests,
        forwarding: Forwarding,
        permits: Permits | None = None,
    ) -> None:
        """``routes``: bound. ``meters``: filled with one meter per route. ``permits`` None: all is permitted."""
        self._routes = routes
        self._executors = executors
        self._meters = meters
        self._open_requests = open_requests
        self._forwarding = forwarding
        self._permits = permits
        self.metering: Throttling | None = None
        """Enforces clients' quotas; None while there are none."""
        self._long_requests = LongRequests()
        self._slots = {what: RequestSlots() for what in WaitsFor}
        self._joining: set[Connection] = set()
        """Of which a JoinGroup is open."""
        for key in self._routes:
            meters[key] = RequestMeter()

    def on_frame(self, connection: Connection, frame: memoryview, reply: Reply) -> None:
        try:
            head = codec.read_head(frame)
            route = self._routes.get(head.key)
            if route is None or not route.min_version <= head.version <= route.max_version:
                raise UnsupportedVersion(f"{api_name(head.key)} version {head.version} is not served")
        except UnsupportedVersion:
            head = self._answer_versions_or_raise(connection, frame)
            values = self._routes[ApiKey.API_VERSIONS].handle(Request(head, None, connection))
            reply.send(codec.encode_response(head, codec.response(head.key, 0, **values)))
            return
        if connection.client_id is None and head.client_id is not None:
            connection.client_id = head.client_id[:CLIENT_CHARS_MAX]
        meter = self._meters[head.key]
        meter.count += 1
        timed = None
        if meter.count >= meter.timed_from:
            reply = timed = TimedReply(connection, reply, meter)
        metered = None
        if self.metering is not None and not connection.is_broker:
            reply = metered = self.metering.begin(head, len(frame), reply, connection)
        if route.takes_frames:
            rest = route.handle(head, frame, reply, connection)
            if rest is not None:
                self._follow(rest, head, reply, connection)
        else:
            call = _Call(route, head, reply, connection)
            if not (connection.is_broker or route.waits):
                call.slots = self._slots[WaitsFor.of(head.key, of_controller=route.of_controller)]
            if call.slots is None or call.slots.enter(connection.address):
                self._begin(call, frame)
            else:
                self._wait_for_slot(call, call.slots, bytes(frame))
        if timed is not None:
            timed.handled()
        if metered is not None:
            metered.handled()

    def _follow(self, rest: Coroutine[Any, Any, None], head: RequestHead, reply: Reply, connection: Connection) -> None:
        if isinstance(reply, MeteredReply):
            rest = reply.timed(rest)
        self._open_requests.follow(guarded(rest, head, connection))

    def _wait_for_slot(self, call: _Call, slots: RequestSlots, frame: bytes) -> None:
        connection, reply = call.connection, call.reply
        connection.pause_reading(len(frame))

        def begin() -> None:
            is_answered = True
            with ended_by_errors(call.head, connection):
                is_answered = self._begin(call, memoryview(frame))
            if is_answered and not connection.closed:
                connection.resume_reading()

        slots.call_when_free(connection, reply.measured(begin) if isinstance(reply, MeteredReply) else begin)

    def _begin(self, call: _Call, frame: memoryview) -> bool:
        """Serve a request that has its slot; whether it is answered now."""
        values = None
        try:
            values = self._answer_or_values(call, frame)
        finally:
            if values is None:
                call.leave_slot()
        if values is None:
            return True
        joins = call.head.key == ApiKey.JOIN_GROUP
        # Copiers pipeline ProduceAt requests; their appends must keep the order of the requests.
        if (call.slots is not None and call.head.key != ApiKey.PRODUCE_AT) or (
            call.route.waits and (len(frame) > HELD_BYTES_MAX or (joins and call.connection in self._joining))
        ):
            call.is_paused = True
            call.connection.pause_reading(len(frame))
        if joins:
            self._joining.add(call.connection)
        self._follow(self._finish(call, values), call.head, call.reply, call.connection)
        return False

    def _answer_or_values(self, call: _Call, frame: memoryview) -> Any | None:
        """Answer the request, or decide how the values of its answer come: later from the handler, from another broker,
        or by way of a thread, where the request or the answer is long."""
        route, head, connection = call.route, call.head, call.connection
        if route.of_brokers and not connection.is_broker:
            error = ClusterAuthorizationFailed("the connection has not shown the cluster's secret")
            about = (api_name(head.key), connection.peer, error.message)
            log.warning("refused %s of %s: %s", *about, extra={"peer": connection.peer})
            call.reply.send(_encode(head, _refused(head, error)))
            return None
        try:
            elements_max = TRUSTED_ELEMENTS_MAX if connection.is_broker else LOOP_ELEMENTS_MAX
            request = Request(head, codec.decode_body(frame, head, elements_max), connection)
        except TooManyElements:
            if connection.is_broker:
                raise
            return self._decode_aside(call, [bytes(frame)])
        values: Any = self._values(route, request)
        if not isinstance(values, dict):
            return values
        if not _is_long(values):
            call.reply.send(_encode(head, values))
            return None
        if call.slots is not None and head.key in ASKED_AGAIN and self._long_requests.is_full(connection.address):
            return self._values_later(route, request)
        return _ready(values)

    def _values(self, route: Route, request: Request, *, may_forward: bool = True) -> Any:
        """The values of the answer, or an awaitable of them: by the handler here, or by the controller."""

        def serve(permitted: Request) -> Any:
            if may_forward and route.of_controller and self._forwarding.is_needed(permitted.head.client_id):
                return self._forward(permitted, route.handle)
            return route.handle(permitted)

        return serve(request) if self._permits is None else self._permits(request, serve)

    async def _values_later(self, route: Route, request: Request) -> Any:
        """The long answer to a read-only request, made when the client's turn has come."""
        assert request.connection is not None
        async with self._long_requests.of_address(request.connection):
            pass
        return await _ready(self._values(route, request))

    async def _decode_aside(self, call: _Call, frames: list[bytes]) -> Any:
        """The values of the answer to a long request, decoded in a thread. ``frames``: one, taken out."""
        async with self._long_requests.in_hand(call.connection):
            return await _ready(await self._values_aside(call, frames))

    async def _values_aside(self, call: _Call, frames: list[bytes]) -> Any:
        connection = call.connection
        entity, may_forward = await self._executors.run_in_turn(
            connection.address, "", Purpose.ANSWERS, _decode_long, frames, call.head
        )
        return self._values(call.route, Request(call.head, entity, connection), may_forward=may_forward)

    async def _forward(self, request: Request, handle: Handler) -> Any:
        """The controller's answer; this broker's own refusal where the controller cannot be reached."""
        answer = await self._forwarding.ask(request.entity, request.actor)
        return answer if answer is not None else await _ready(handle(request))

    def _answer_versions_or_raise(self, connection: Connection, frame: memoryview) -> RequestHead:
        """Answer an unknown version of ApiVersions and return its head; raise again for any other request."""
        key, _, correlation_id = struct.unpack_from(">hhi", frame)
        if key != ApiKey.API_VERSIONS:
            route = self._routes.get(key)
            served = None if route is None else (route.min_version, route.max_version)
            raise UnsupportedVersion(unsupported_requests.describe(frame, connection.software, served))
        return RequestHead(key, 0, correlation_id, None, 8)

    async def _finish(self, call: _Call, values: Awaitable[Answer]) -> None:
        """Await the values and send them."""
        head, connection = call.head, call.connection
        turns, address = connection.turns, connection.address
        try:
            if not connection.is_broker:
                await turns.wait_for_turn(address)
            answered = await values
            if _is_long(answered):
                kept = [answered]
                del answered
                await self._send_long(call, kept)
            else:
                if not connection.is_broker:
                    await turns.wait_for_turn(address)
                began_s = time.perf_counter()
                answer = _encode(head, answered)
                turns.spent(time.perf_counter() - began_s)
                call.reply.send(answer)
        finally:
            call.leave_slot()
            if head.key == ApiKey.JOIN_GROUP:
                self._joining.discard(connection)
        if call.is_paused:  # not after an error: the connection is closed then
            connection.resume_reading()

    async def _send_long(self, call: _Call, kept: list[Any]) -> None:
        """Encode the answer in a thread. A client's next long one waits until it has taken this one.

        ``kept``: its values, taken out, so that nobody else holds them meanwhile.
        """
        connection = call.connection

        async def send() -> None:
            call.reply.send(
                await self._executors.run_in_turn(
                    connection.address, "", Purpose.ANSWERS, _encode, call.head, kept.pop()
                )
            )

        if connection.is_broker:
            await send()
            return
        async with self._long_requests.of_address(connection):
            async with self._long_requests.of_all(connection):
                await send()
            await connection.taken()


async def guarded(rest: Awaitable[None], head: RequestHead, connection: Connection) -> None:
    """Await the rest of a request; an error closes the connection and is logged."""
    with ended_by_errors(head, connection):
        await rest


@contextmanager
def ended_by_errors(head: RequestHead, connection: Connection) -> Iterator[None]:
    """Close the connection on an error in a request, and log it."""
    try:
        yield
    except ConnectionEnded:
        log.debug("%s of %s: the client does not wait for the rest", api_name(head.key), connection.peer)
    except (PeerError, RequestTimedOut) as error:
        log.warning("closing the connection of %s: %s", connection.peer, error.message, extra={"peer": connection.peer})
        connection.close(None)
    except Exception:
        log.exception(
            "internal error in %s of %s", api_name(head.key), connection.peer, extra={"peer": connection.peer}
        )
        connection.close(None)


def _decode_long(frames: list[bytes], head: RequestHead) -> tuple[Any, bool]:
    """The entity, and whether it is short enough to be forwarded."""
    frame = memoryview(frames.pop())
    try:
        return codec.decode_body(frame, head, FORWARDED_ELEMENTS_MAX), True
    except TooManyElements:
        return codec.decode_body(frame, head, ELEMENTS_MAX), False


def _is_long(values: Any) -> bool:
    """Whether an answer has so many elements, at any depth, that encoding it would delay the event loop (rule P1).

    ``values``: a dict, or an entity (another broker's answer).
    """
    if not isinstance(values, dict):
        return True
    count = 0
    inside: list[Any] = [values]
    while inside:
        one = inside.pop()
        if isinstance(one, dict):
            inside.extend(value for value in one.values() if isinstance(value, list | tuple | dict))
            continue
        count += len(one)
        if count > LOOP_ELEMENTS_MAX:
            return True
        if one and isinstance(one[0], dict | list | tuple):
            inside.extend(one)
    return False


async def _ready(values: Any) -> Any:
    """Values that are there, or awaited."""
    return values if isinstance(values, dict) else await values


def _encode(head: RequestHead, values: Any) -> bytes:
    entity = codec.response(head.key, head.version, **values) if isinstance(values, dict) else values
    return codec.encode_response(head, entity)
