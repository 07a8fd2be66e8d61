"""From a frame to its handler and back.

Handlers register themselves here, one file an API key in `klog.server.handlers`; ApiVersions answers from the same
table. Two sorts:

* `handles`: gets the decoded entity and returns the answer's values as a dict, at once or from a coroutine; the codec
  builds the entity of the request's version from it.
* `handles_frame`: gets the frame itself and fills the reply itself, for Produce and Fetch, where the record bytes must
  not be copied.

An answer of very many elements is encoded beside the event loop; the handlers themselves run on it.

A request that means nothing raises PeerError: the connection is closed and the log names the peer. An unknown version
of ApiVersions alone is answered, in version 0's form, since that is how clients find out what to speak (KIP-511).
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from klog.errors import ClusterAuthorizationFailed, PeerError, RequestTimedOut, UnsupportedVersion
from klog.metrics import RequestMeter
from klog.net.connection import Connection, Part, Reply
from klog.net.turns import Share
from klog.protocol import codec
from klog.protocol.apis import ApiKey, api_name
from klog.protocol.bounds import ELEMENTS_MAX, TRUSTED_ELEMENTS_MAX
from klog.protocol.codec import RequestHead
from klog.server.executors import Purpose
from klog.server.forward import forward, is_for_controller

if TYPE_CHECKING:
    from klog.server.broker import Broker

log = logging.getLogger(__name__)

LOOP_ELEMENTS_MAX = 2_000
"""An answer of more elements is encoded in a thread: some 8 us each."""


class Request(NamedTuple):
    """``connection`` is None where the broker asks itself."""

    head: RequestHead
    entity: Any
    connection: Connection | None

    @property
    def peer(self) -> str:
        return "this broker" if self.connection is None else self.connection.peer

    def share(self) -> Share:
        """For a handler that has much to do one by one: it lets others on."""
        return Share(None if self.connection is None else self.connection.turns)


Answer = dict[str, Any]
"""The values of a response. A handler that passes another broker's answer on returns its entity as it is."""
Handler = Callable[["Broker", Request], "Answer | Awaitable[Answer | Any]"]
FrameHandler = Callable[["Broker", RequestHead, memoryview, Reply, Connection], None]


class Route(NamedTuple):
    key: int
    min_version: int
    max_version: int
    handle: Handler | None
    handle_frame: FrameHandler | None
    advertised_min_version: int
    """Below ``min_version`` where clients must see an old version that is refused all the same (Produce)."""
    advertised_max_version: int
    """Below ``max_version`` where the later ones are for klog's own tools and would change what stock clients do."""
    of_controller: bool
    """Only the controller can grant it: another broker passes it on."""
    refusal: Answer | None
    """Of a request among brokers: what else stands in the answer to who has not shown the cluster's secret."""


ROUTES: dict[int, Route] = {}
"""key -> route. Filled by the handlers' modules as they are imported, never changed afterwards."""


def handles(
    key: ApiKey,
    min_version: int,
    max_version: int,
    *,
    advertised_max_version: int | None = None,
    of_controller: bool = False,
    refusal: Answer | None = None,
) -> Callable[[Handler], Handler]:
    """Register a handler of decoded requests for versions ``min_version`` to ``max_version``.

    ``refusal`` makes it a request among brokers (rule R10): other connections are answered with it and
    CLUSTER_AUTHORIZATION_FAILED, and what they sent is not looked at.
    """
    advertised = max_version if advertised_max_version is None else advertised_max_version

    def register(handle: Handler) -> Handler:
        ROUTES[key] = Route(
            key, min_version, max_version, handle, None, min_version, advertised, of_controller, refusal
        )
        return handle

    return register


def handles_frame(
    key: ApiKey, min_version: int, max_version: int, *, advertised_min_version: int | None = None
) -> Callable[[FrameHandler], FrameHandler]:
    """Register a handler of frames."""
    advertised = min_version if advertised_min_version is None else advertised_min_version

    def register(handle: FrameHandler) -> FrameHandler:
        ROUTES[key] = Route(
            key, min_version, max_version, None, handle, advertised, max_version, of_controller=False, refusal=None
        )
        return handle

    return register


class TimedReply(Reply):
    """A reply that notes when it is filled."""

    __slots__ = ("_began_s", "_handled_s", "_inner", "_is_filled", "_meter")

    def __init__(self, connection: Connection, inner: Reply, meter: RequestMeter) -> None:
        super().__init__(connection)
        self._inner = inner
        self._meter = meter
        meter.choose_next()
        self._began_s = time.perf_counter()
        self._handled_s: float | None = None
        self._is_filled = False

    def send(self, *parts: Part) -> None:
        now_s = time.perf_counter()
        self._meter.total.took((now_s - self._began_s) * 1000)
        self._is_filled = True
        if self._handled_s is not None:
            self._meter.remote.took((now_s - self._handled_s) * 1000)
        self._inner.send(*parts)

    def handled(self) -> None:
        """The handler has returned; what is still to come is waiting."""
        self._handled_s = time.perf_counter()
        self._meter.local.took((self._handled_s - self._began_s) * 1000)
        if self._is_filled:
            self._meter.remote.took(0.0)


class Dispatcher:
    """Hands each frame to its handler. Event loop only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._meters = broker.measures.requests
        for key in ROUTES:
            self._meters[key] = RequestMeter()
        self._tasks: set[asyncio.Task[None]] = set()

    def on_frame(self, connection: Connection, frame: memoryview, reply: Reply) -> None:
        try:
            head = codec.read_head(frame)
            route = ROUTES.get(head.key)
            if route is None or not route.min_version <= head.version <= route.max_version:
                raise UnsupportedVersion(f"{api_name(head.key)} version {head.version} is not served")
        except UnsupportedVersion:
            head = self._answer_versions_or_raise(frame)
            route = ROUTES[ApiKey.API_VERSIONS]
            assert route.handle is not None
            values = route.handle(self._broker, Request(head, None, connection))
            assert isinstance(values, dict)
            reply.send(codec.encode_response(head, codec.response(head.key, 0, **values)))
            return
        meter = self._meters[head.key]
        meter.count += 1
        timed = None
        if meter.count >= meter.timed_from:
            reply = timed = TimedReply(connection, reply, meter)
        if route.handle_frame is not None:
            route.handle_frame(self._broker, head, frame, reply, connection)
        else:
            self._hand_on(route, head, frame, reply, connection)
        if timed is not None:
            timed.handled()

    def _hand_on(
        self, route: Route, head: RequestHead, frame: memoryview, reply: Reply, connection: Connection
    ) -> None:
        """To a handler of decoded requests."""
        assert route.handle is not None
        if route.refusal is not None and not connection.is_broker:
            log.warning(
                "refused %s of %s: the connection has not shown the cluster's secret",
                api_name(head.key),
                connection.peer,
                extra={"peer": connection.peer},
            )
            reply.send(_encode(head, {"error_code": ClusterAuthorizationFailed.wire, **route.refusal}))
            return
        elements_max = TRUSTED_ELEMENTS_MAX if connection.is_broker else ELEMENTS_MAX
        request = Request(head, codec.decode_body(frame, head, elements_max), connection)
        if route.of_controller and is_for_controller(self._broker, route, head.client_id):
            values_or_awaitable: Any = forward(self._broker, request, route)
        else:
            values_or_awaitable = route.handle(self._broker, request)
        if isinstance(values_or_awaitable, dict):
            if not _is_long(values_or_awaitable):
                reply.send(_encode(head, values_or_awaitable))
                return
            values_or_awaitable = _ready(values_or_awaitable)
        self.follow(self._finish(head, values_or_awaitable, reply, connection))

    def follow(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what is left of a request that is being handled; it raises nothing."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _answer_versions_or_raise(self, frame: memoryview) -> RequestHead:
        """The head of an ApiVersions request of a version we do not know; the error again for any other request."""
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        if key != ApiKey.API_VERSIONS:
            raise UnsupportedVersion(f"{api_name(key)} version {version} is not served")
        return RequestHead(key, 0, correlation_id, None, 8)

    async def _finish(self, head: RequestHead, values: Awaitable[Answer], reply: Reply, connection: Connection) -> None:
        turns = connection.turns
        try:
            await turns.come()
            answered = await values
            if _is_long(answered):
                answer = await self._broker.executors.run_in_turn(
                    connection.address, "", Purpose.ANSWERS, _encode, head, answered
                )
            else:
                await turns.come()
                began_s = time.perf_counter()
                answer = _encode(head, answered)
                turns.spent(time.perf_counter() - began_s)
        except (PeerError, RequestTimedOut) as error:
            log.warning(
                "closing the connection of %s: %s", connection.peer, error.message, extra={"peer": connection.peer}
            )
            connection.close(None)
        except Exception:
            log.exception(
                "%s of %s failed: our fault", api_name(head.key), connection.peer, extra={"peer": connection.peer}
            )
            connection.close(None)
        else:
            reply.send(answer)

    async def drain(self, timeout_s: float) -> None:
        """Wait for requests that are being handled, at a controlled shutdown."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)


def _is_long(values: Any) -> bool:
    """Whether an answer has so many elements that encoding it would hold the event loop (rule P1)."""
    count = 0
    for outer in values.values() if isinstance(values, dict) else ():
        if not isinstance(outer, list):
            continue
        count += len(outer)
        for one in outer:
            if count > LOOP_ELEMENTS_MAX:
                return True
            if isinstance(one, dict):
                count += sum(len(inner) for inner in one.values() if isinstance(inner, list))
    return count > LOOP_ELEMENTS_MAX


async def _ready(values: dict[str, Any]) -> dict[str, Any]:
    return values


def _encode(head: RequestHead, values: Any) -> bytes:
    entity = codec.response(head.key, head.version, **values) if isinstance(values, dict) else values
    return codec.encode_response(head, entity)


async def answer_locally(broker: Broker, entity: Any) -> Any:
    """What this broker answers to a request of its own; no bytes are made of either."""
    key, version = int(entity.__api_key__), int(entity.__version__)
    handle = ROUTES[key].handle
    assert handle is not None
    values = handle(broker, Request(RequestHead(key, version, 0, None, 0), entity, None))
    if not isinstance(values, dict):
        values = await values
    return codec.response(key, version, **values) if isinstance(values, dict) else values
