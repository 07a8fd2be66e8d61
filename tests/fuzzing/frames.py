"""Frames that are nearly right: every request and version that a broker serves, filled by its schema, then damaged.

Two sources of wrongness. Values are drawn from what requests hold in earnest and from the edges of each type, and
bytes are then changed where they lie: bits, lengths, counts, varints, pieces cut out, doubled, or taken from another
request; and the head may name another request than the body is of. Names begin with `OWN`, so that what a permission
covers can be told from what it does not.
"""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints

from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.protocol.versions import WRITTEN_BY_HAND, request_schema
from klog.record.records import Record, encode_batch
from klog.server import handlers
from klog.server.dispatch import ROUTES

assert handlers  # they register themselves

OWN: Final = "fuzz-"
SENTINEL: Final = "sentinel"
"""A topic and a group that no permission of the attacker covers."""
CORRELATION: Final = 7
STOPPERS: Final = frozenset({ApiKey.STOP_BROKER, ApiKey.RESTART_BROKER})
"""What ends a broker if it is permitted, as it must."""

_TEXTS: Final = (
    *(
        f"{OWN}a",
        f"{OWN}b",
        SENTINEL,
        f"{OWN}a-value",
        "",
        "x",
        "*",
        "kafka-cluster",
        "klog.events",
        "../../etc/passwd",
    ),
    *("User:mallory", "User:admin", "consumer", "range", "retention.ms", "log.retention.ms", "60000", "-1", "AVRO"),
    *('"string"', '{"type":"record","name":"r","fields":[]}', "a" * 300, "\x1b[2J\r\n", "ä\u202e\0", "SCRAM-SHA-256"),
    *("register", "find", "check", "delete", "BACKWARD", "admin", "mallory", "1", "0"),
)
_SMALL: Final = (0, 0, 0, 1, 1, 2, 3, -1, -1, -2, 4, 7, 10)
_BITS: Final = {"int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64, "uint64": 64}
_SHAPES: Final = (
    *(b"\xff", b"\0", b"\x7f", b"\x80", b"\xff\xff", b"\x7f\xff", b"\x80\0", b"\0\0", b"\xff\xff\xff\xff"),
    *(b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0", b"\0\0\0\1", b"\0\1\x86\xa1", b"\xff\xff\xff\xff\x0f"),
    *(
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\1",
        b"\x80\x80\x80\x80\x80\x80",
        b"\x7f" + b"\xff" * 7,
        b"\x80" + bytes(7),
    ),
    *(b"\xfe\xff\xff\xff\x0f", b"\1\x88\x27\xff\xff\xff\xff\x0f", b"\2\0\0\1\1"),
)
"""Lengths, counts, varints and sections of tags that lie."""

_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
_LOGINS: Final = (
    *(b"n,,n=mallory,r=abcdef", b"n,,n=admin,r=abcdef", b"n,,n=nobody,r=abcdef", b"y,a=mallory,n=mallory,r=x,m=1"),
    *(b"p=tls-unique,,n=mallory,r=abcdef", b"n,a=admin,n=mallory,r=abcdef", b"n,,m=x,n=mallory,r=a", b"n,,n=a=2Cb,r=a"),
    *(
        b"c=biws,r=abcdef,p=" + b"A" * 43 + b"=",
        b"c=eSws,r=,p=AAAA",
        b"\0mallory\0wrong",
        b"admin\0mallory\0wrong",
        b"\0\0",
    ),
    *(b"", b"\0", b"n,,", b"n,,n=" + b"m" * 1100 + b",r=a", b"\0" + b"m" * 1100 + b"\0p"),
)

Value = Callable[["Frames"], Any]


class Frame(NamedTuple):
    """``body``: without the length in front of it."""

    key: int
    version: int
    body: bytes


class Frames:
    """Draws frames, the same ones for the same ``chance``."""

    def __init__(self, chance: random.Random, keys: Sequence[int] | None = None) -> None:
        """``keys``: of which requests; None: of all."""
        self.chance = chance
        self.served = [
            (route.key, version)
            for route in ROUTES.values()
            for version in range(route.min_version, route.max_version + 1)
            if keys is None or route.key in keys
        ]
        self._kept: list[Frame] = []
        """One of each; pieces of them go into others."""
        for one in self.served:
            self._kept.append(self.good(*one))

    def good(self, key: int, version: int) -> Frame:
        """A request that its schema allows."""
        if key in WRITTEN_BY_HAND:
            head = struct.pack(">hhih", key, version, CORRELATION, 1) + b"c"
            return Frame(key, version, head + self.chance.randbytes(self.chance.randrange(60)))
        while True:
            try:
                entity = codec.build(request_schema(key, version), _values(request_schema(key, version), self))
                return Frame(key, version, codec.encode_request(entity, CORRELATION, "fuzz")[4:])
            except (OverflowError, ValueError, struct.error):  # two extremes that no encoder writes together
                continue

    def next(self) -> Frame:
        """One frame in four is as good as its values; the others are damaged once or several times."""
        chance = self.chance
        number = chance.randrange(len(self.served))
        if chance.random() < 0.3:
            self._kept[number] = self.good(*self.served[number])
        frame = self._kept[number]
        body = bytearray(frame.body)
        for _ in range(chance.choice((0, 0, 1, 1, 1, 2, 2, 5))):
            self._damage(body)
        if chance.random() < 0.02:
            body[0:4] = struct.pack(">hh", *chance.choice(self.served))
        if len(body) < 4:
            return Frame(-1, -1, bytes(body))
        return Frame(*struct.unpack_from(">hh", body), bytes(body))

    def _damage(self, body: bytearray) -> None:
        chance = self.chance
        first = 0 if chance.random() < 0.03 else 8
        if len(body) <= first + 1:
            body += chance.randbytes(3)
            return
        at = chance.randrange(first, len(body))
        match chance.randrange(10):
            case 0 | 1:
                body[at] ^= 1 << chance.randrange(8)
            case 2:
                body[at] = chance.randrange(256)
            case 3 | 4:
                shape = chance.choice(_SHAPES)
                body[at : at + len(shape)] = shape
            case 5:
                shape = chance.choice(_SHAPES)
                body[at:at] = shape
            case 6:
                del body[at:]
            case 7:
                del body[at : at + chance.randrange(1, 9)]
            case 8:
                end = min(len(body), at + chance.randrange(1, 40))
                body[at:at] = body[at:end] * chance.choice((1, 1, 2, 30))
            case _:
                other = chance.choice(self._kept).body if self._kept else bytes(9)
                begin = chance.randrange(len(other))
                body[at:] = other[begin : begin + chance.choice((4, 20, len(other)))]

    def number(self, bits: int, *, signed: bool) -> int:
        chance = self.chance
        if chance.random() < 0.85:
            value = chance.choice(_SMALL)
        else:
            value = chance.choice(
                (1 << (bits - 1), (1 << (bits - 1)) - 1, -(1 << (bits - 1)), chance.getrandbits(bits))
            )
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        return min(max(value, low), high)

    def records(self) -> bytes:
        chance = self.chance
        batch = b"".join(
            bytes(
                encode_batch(
                    [Record(n, 1_700_000_000_000, b"k", chance.randbytes(9), ()) for n in range(chance.randrange(1, 4))]
                )
            )
            for _ in range(chance.choice((1, 1, 2)))
        )
        damaged = bytearray(batch)
        if chance.random() < 0.3:
            self._damage(damaged)
        return bytes(damaged)


@cache
def _plan(schema: Any) -> tuple[tuple[str, Value], ...]:
    hints = get_type_hints(schema)
    return tuple(
        (one.name, _drawing(one.name, hints[one.name], one.metadata.get("kafka_type"))) for one in fields(schema)
    )


def _values(schema: Any, frames: Frames) -> dict[str, Any]:
    return {name: draw(frames) for name, draw in _plan(schema)}


def _drawing(name: str, hint: Any, kind: str | None) -> Value:
    arms = [arm for arm in get_args(hint) if arm is not type(None) and arm is not ...]
    if get_origin(hint) is tuple:
        one = _drawing(name, arms[0], kind)
        return lambda frames: [one(frames) for _ in range(frames.chance.choice((0, 1, 1, 1, 2, 3)))]
    if arms:
        inner = _drawing(name, arms[0], kind)
        return lambda frames: None if frames.chance.random() < 0.2 else inner(frames)
    if is_dataclass(hint):
        return lambda frames: _values(hint, frames)
    if kind == "records" or name == "records":
        return lambda frames: frames.records()
    if name == "mechanism":
        return lambda frames: frames.chance.choice(
            (*_MECHANISMS, *_MECHANISMS, *_MECHANISMS, "GSSAPI", "", "scram-sha-256")
        )
    if name == "auth_bytes":
        return lambda frames: frames.chance.choice(_LOGINS)
    if kind == "string":
        return lambda frames: frames.chance.choice(_TEXTS[:3] if frames.chance.random() < 0.6 else _TEXTS)
    if kind in _BITS:
        return lambda frames: frames.number(_BITS[kind], signed=not kind.startswith("u"))
    if kind == "bool":
        return lambda frames: frames.chance.random() < 0.5
    if kind == "uuid":
        return lambda frames: frames.chance.choice((None, uuid.UUID(int=frames.chance.getrandbits(128))))
    if kind == "float64":
        return lambda frames: frames.chance.choice((0.0, -1.0, 1e300, float("nan"), float("inf")))
    if kind == "error_code":
        return lambda frames: frames.chance.choice((0, 3, 29))
    if kind in ("timedelta_i32", "timedelta_i64", "datetime_i64"):  # the rest of the range comes by damage
        return lambda frames: frames.chance.choice((0, 0, 1, 5, 100, 1000, 60_000))
    return lambda frames: frames.chance.choice((b"", b"\0", b"n,,n=mallory,r=abc", frames.chance.randbytes(20)))
