"""Enforces quotas (`klog.security.quotas`), as Kafka's brokers do (KIP-13, KIP-124, KIP-219, KIP-599).

A client over its quota is answered at once, with its throttle time, and the broker reads nothing from that connection
for that time, whether the client waits or not. Requests of brokers are not counted.

Strategy
    Without quotas the dispatcher's `Dispatcher.metering` is None, and a request costs one check of that. With quotas
    each request of a client gets a `MeteredReply`, which counts, writes the throttle time into the encoded answer, and
    mutes the connection.

Counted
    produce     the bytes of the request, when it has come
    fetch       the bytes of records in the answer. An answer over the quota is sent without records, and not counted;
                so that batches larger than the quota's windows are read at all, the first after a silence is sent in
                any case. No answer has more than the windows allow.
    request     the time for which the event loop was busy with the request until its answer is filled: decoding, the
                handler, encoding. Not: threads, sending, and the commit that completes a produce request.
    mutations   partitions created and deleted, at the controller, for the client whose request another broker forwards
    connections of addresses, where they are accepted (`klog.net.arrivals`)

Limits
    The state of clients that are silent for all windows is dropped, which changes nothing for them; beyond `METERS_MAX`
    of a kind the least recently seen are dropped (`klog_quota_meters_dropped_total`).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, fields
from functools import cache, partial
from typing import Any, Final

from klog.config import BrokerConfig
from klog.metrics import Throttled
from klog.net.arrivals import AddressLimits, Arrivals
from klog.net.connection import Connection, Part, Reply
from klog.protocol.apis import OWN_KEYS_FROM, ApiKey
from klog.protocol.codec import RequestHead
from klog.protocol.versions import is_flexible, response_schema
from klog.security.principal import ANONYMOUS, Principal
from klog.security.quotas import Entity, Limit, QuotaKey, QuotaTable, ThrottlingQuotaExceeded
from klog.security.rates import Meters, Rate, TokenBucket, Windows
from klog.server.event_limits import Repeats

PRODUCES: Final = frozenset({ApiKey.PRODUCE, ApiKey.PRODUCE_AT})
MUTATIONS: Final = frozenset({ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS})
THROTTLE_MS_MAX: Final = 2**31 - 1
_I32 = struct.Struct(">i")


class Throttling:
    """Event loop only."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Callable[[], float],
        measured: dict[str, Throttled],
        tell: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        """``clock``: seconds; ``measured``: by quota, filled here; ``tell`` records an event."""
        self.table = QuotaTable()
        windows = Windows(config.integer("quota.window.num"), config.integer("quota.window.size.seconds"))
        of_controller = Windows(
            config.integer("controller.quota.window.num"), config.integer("controller.quota.window.size.seconds")
        )
        self.windows = windows
        self._clock = clock
        self._rates: dict[QuotaKey, Meters[Entity, Rate]] = {
            key: Meters(lambda: Rate(windows))
            for key in (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)
        }
        self._buckets: Meters[Entity, TokenBucket] = Meters(lambda: TokenBucket(of_controller))
        self.measured = measured
        self._tell = tell
        self._repeats: Repeats[tuple[QuotaKey, Entity]] = Repeats()
        measured |= {str(key): Throttled(rates) for key, rates in self._rates.items()}
        measured[QuotaKey.CONTROLLER_MUTATION_RATE] = Throttled(self._buckets)

    def begin(self, head: RequestHead, frame_bytes: int, reply: Reply, connection: Connection) -> MeteredReply:
        """A client's request has come."""
        metered = MeteredReply(self, head, reply, connection)
        if head.key in PRODUCES:
            wait_s = self.count(QuotaKey.PRODUCER_BYTE_RATE, metered.user, metered.client, frame_bytes)
            if wait_s:
                metered.throttle(QuotaKey.PRODUCER_BYTE_RATE, wait_s)
        return metered

    def count(self, key: QuotaKey, user: str, client: str, amount: float) -> float:
        """Count; returns the throttle time in seconds."""
        limit = self.table.limit(key, user, client)
        if limit is None:
            return 0.0
        now_s = self._clock()
        rate = self._rates[key].of(limit.scope, now_s)
        rate.add(amount, now_s)
        return rate.wait_s(limit.rate, now_s)

    def count_fetch(self, user: str, client: str, size_bytes: int) -> float:
        """`count` for an answer with that many bytes of records. Above 0: not counted, and must not be sent."""
        limit = self.table.limit(QuotaKey.CONSUMER_BYTE_RATE, user, client)
        if limit is None:
            return 0.0
        now_s = self._clock()
        rate = self._rates[QuotaKey.CONSUMER_BYTE_RATE].of(limit.scope, now_s)
        is_first = rate.counted(now_s) <= 0
        rate.add(size_bytes, now_s)
        wait_s = rate.wait_s(limit.rate, now_s)
        if is_first or not wait_s:
            return 0.0
        rate.add(-size_bytes, now_s)
        return wait_s

    def fetch_bytes_max(self, user: str, client: str, bytes_max: int) -> int:
        """The limit of one answer, ``bytes_max`` at most."""
        limit = self.table.limit(QuotaKey.CONSUMER_BYTE_RATE, user, client)
        if limit is None:
            return bytes_max
        rate = self._rates[QuotaKey.CONSUMER_BYTE_RATE].of(limit.scope, self._clock())
        return int(min(rate.allowed_at_once(limit.rate), bytes_max))

    def mutations(self, actor_principal: str, client: str, host: str, *, is_strict: bool) -> Mutations:
        """Counts a request's creations and deletions. ``actor_principal``: "" for an anonymous client."""
        key = QuotaKey.CONTROLLER_MUTATION_RATE
        user = (Principal.parse(actor_principal) if actor_principal else ANONYMOUS).name
        limit = self.table.limit(key, user, client)
        if limit is None:
            return FREE
        bucket = self._buckets.of(limit.scope, self._clock())
        note = partial(self.note, key, user, client, host)
        return Mutations(bucket, limit.rate, self._clock, note, is_strict)

    def note(self, key: QuotaKey, user: str, client: str, host: str, wait_s: float) -> None:
        """Count a throttled client, and record an event: one for many of the same, and few of all together."""
        self._note(key, self.table.limit(key, user, client), user, client, host, wait_s)

    def _note(self, key: QuotaKey, limit: Limit | None, user: str, client: str, host: str, wait_s: float) -> None:
        self.measured[key].add(wait_s)
        if limit is None:  # it has been removed meanwhile
            return
        before = self._repeats.count((key, limit.scope), self._clock())
        if before is None:
            return
        facts: dict[str, Any] = {
            "quota": str(key),
            "entity": limit.entity.path,
            "limit": limit.rate,
            "user": user,
            "client": client,
            "host": host,
            "throttle_ms": round(wait_s * 1000),
        }
        self._tell("throttled", facts | before)

    def limit_addresses(self, arrivals: Arrivals) -> None:
        """Apply the current quotas of addresses (`klog.net.arrivals`)."""
        key = QuotaKey.CONNECTION_CREATION_RATE
        if key not in self.measured:
            self.measured[key] = Throttled(arrivals.of_addresses)
        arrivals.address_limits = AddressLimits(self._rate_of, self._note_address) if key in self.table.keys else None

    def _rate_of(self, ip: str) -> float | None:
        limit = self.table.connection_limit(ip)
        return None if limit is None else limit.rate

    def _note_address(self, ip: str, wait_s: float) -> None:
        self._note(QuotaKey.CONNECTION_CREATION_RATE, self.table.connection_limit(ip), "", "", ip, wait_s)


class MeteredReply(Reply):
    """The reply to a client while there are quotas. Event loop only."""

    __slots__ = ("_began_s", "_head", "_inner", "_spent_s", "_throttling", "_wait_s", "client", "user")

    def __init__(self, throttling: Throttling, head: RequestHead, inner: Reply, connection: Connection) -> None:
        super().__init__(connection)
        self.user = connection.principal.name
        self.client = head.client_id or ""
        self._throttling = throttling
        self._head = head
        self._inner = inner
        self._wait_s = 0.0
        self._spent_s = 0.0
        self._began_s: float | None = time.perf_counter()

    def throttle(self, key: QuotaKey, wait_s: float) -> None:
        """Put the throttle time into the answer, and mute the connection for it."""
        wait_s = min(wait_s, THROTTLE_MS_MAX / 1000)
        self._throttling.note(key, self.user, self.client, self._connection.address, wait_s)
        self._mute(wait_s)

    def _mute(self, wait_s: float) -> None:
        self._wait_s = max(self._wait_s, wait_s)
        if self.wanted:
            self._connection.mute(wait_s)

    def fetch_bytes_max(self, bytes_max: int) -> int:
        """The limit of a fetch's answer, ``bytes_max`` at most."""
        return self._throttling.fetch_bytes_max(self.user, self.client, bytes_max)

    def refuses(self, size_bytes: int) -> bool:
        """Whether an answer with that many bytes of records exceeds the quota; else they are counted."""
        wait_s = self._throttling.count_fetch(self.user, self.client, size_bytes)
        if wait_s:
            self.throttle(QuotaKey.CONSUMER_BYTE_RATE, wait_s)
        return wait_s > 0

    def send(self, *parts: Part) -> None:
        self._count_time()
        if parts and self._head.key in MUTATIONS:
            self._obey(parts[0])
        if self._wait_s and parts:
            parts = with_throttle(self._head, parts, round(self._wait_s * 1000))
        self._inner.send(*parts)

    def _obey(self, answer: Part) -> None:
        """Obey a throttle time in the answer, set by the controller: another broker or this one."""
        at = throttle_at(self._head.key, self._head.version)
        if at is not None and isinstance(answer, bytes | bytearray):
            wait_s = _I32.unpack_from(answer, at)[0] / 1000
            if wait_s > 0:
                self._mute(wait_s)

    # --- the request's time on the event loop -------------------------------------------------------------------------

    def goes_on(self) -> None:
        """A step of the request begins; `handled` ends it."""
        self._began_s = time.perf_counter()

    def handled(self) -> None:
        """The handler has returned; later work is timed by `timed` or `measured`."""
        if self._began_s is not None:
            self._spent_s += time.perf_counter() - self._began_s
            self._began_s = None

    def measured(self, act: Callable[[], None]) -> Callable[[], None]:
        """A later call, timed as a part of this request."""

        def measured() -> None:
            self.goes_on()
            try:
                act()
            finally:
                self.handled()

        return measured

    async def timed(self, work: Coroutine[Any, Any, None]) -> None:
        """Work after the handler has returned: its time between two waits is counted."""
        await _Steps(self, work)

    def _count_time(self) -> None:
        throttling = self._throttling
        if QuotaKey.REQUEST_PERCENTAGE not in throttling.table.keys:
            return
        spent_s = self._spent_s
        if self._began_s is not None:
            spent_s += time.perf_counter() - self._began_s
        wait_s = throttling.count(QuotaKey.REQUEST_PERCENTAGE, self.user, self.client, spent_s * 100)
        if wait_s:  # Kafka's limit: used time cannot be given back
            self.throttle(QuotaKey.REQUEST_PERCENTAGE, min(wait_s, throttling.windows.size_s))


class _Steps(Generator[Any, Any, None]):
    """A coroutine whose steps between two waits are timed."""

    def __init__(self, reply: MeteredReply, work: Coroutine[Any, Any, None]) -> None:
        self._reply = reply
        self._work = work

    def __await__(self) -> Generator[Any, Any, None]:
        return self

    def send(self, value: Any) -> Any:
        self._reply.goes_on()
        try:
            return self._work.send(value)
        finally:
            self._reply.handled()

    def throw(self, *error: Any) -> Any:
        self._reply.goes_on()
        try:
            return self._work.throw(*error)
        finally:
            self._reply.handled()


@dataclass(frozen=True)
class Mutations:
    """A request's creations and deletions. Strict: refuses those beyond the quota; else only throttles."""

    bucket: TokenBucket | None
    """None: unlimited."""
    limit: float
    clock: Callable[[], float]
    note: Callable[[float], None]
    """Called with the throttle time in seconds."""
    is_strict: bool

    def take(self, partitions: int) -> None:
        """Call before that many partitions are created or deleted. Raises ThrottlingQuotaExceeded if refused."""
        if self.bucket is None:
            return
        wait_s = self.bucket.wait_s(self.limit, self.clock())
        if self.is_strict and wait_s:
            raise ThrottlingQuotaExceeded(
                f"the quota of {self.limit:g} partitions created or deleted per second is used up for {wait_s:.1f} s"
            )
        self.bucket.take(partitions, self.limit, self.clock())

    def throttle_ms(self) -> int:
        """The throttle time at the end of the request."""
        if self.bucket is None:
            return 0
        wait_s = self.bucket.wait_s(self.limit, self.clock())
        if wait_s:
            self.note(wait_s)
        return min(round(wait_s * 1000), THROTTLE_MS_MAX)


FREE: Final = Mutations(None, 0.0, lambda: 0.0, lambda _: None, False)
"""Unlimited."""

# --- the throttle time in an encoded answer ---------------------------------------------------------------------------


@cache
def throttle_at(key: int, version: int) -> int | None:
    """The position of the throttle time in an answer, its length in front; from the end if below 0.

    None for an answer without one, or with one elsewhere.
    """
    if key >= OWN_KEYS_FROM:
        return None
    flexible = is_flexible(key, version)
    if key == ApiKey.PRODUCE:
        return -5 if flexible else -4
    at = 9 if flexible else 8
    if key == ApiKey.FETCH:
        return at
    for one in fields(response_schema(key, version)):
        if one.name == "throttle_time":
            return at
        if one.metadata.get("kafka_type") != "error_code":
            return None
        at += 2
    return None


def with_throttle(head: RequestHead, parts: tuple[Part, ...], throttle_ms: int) -> tuple[Part, ...]:
    """The answer with this throttle time, if its version has one."""
    at = throttle_at(head.key, head.version)
    if at is None:
        return parts
    place = -1 if at < 0 else 0
    part = parts[place]
    assert isinstance(part, bytes | bytearray)
    changed = bytearray(part)
    _I32.pack_into(changed, at, throttle_ms)
    return (changed, *parts[1:]) if place == 0 else (*parts[:-1], changed)
