"""Quotas: limits for clients of a broker (KIP-13, KIP-124, KIP-546, KIP-599, KIP-612). No I/O.

A quota belongs to an entity: a user, a client id, a client id of a user, or a default of those. Of each kind of quota,
the most specific entity with a value counts:

    1  the user with the client id               5  the default user with the default client id
    2  the user with the default client id       6  the default user
    3  the user                                  7  the client id
    4  the default user with the client id       8  the default client id

A default is a value, not shared: each user, or client id, that it applies to has all of it. A user's quota is shared by
all its clients.

An address, or the default address, has one quota only: its rate of new connections.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from klog.errors import InvalidRequest, RequestError

DEFAULT: Final = ""
"""The name of a default entity. A user or a client id in an entity cannot be empty, as in Kafka."""
DEFAULT_NODE: Final = "<default>"
NAME_BYTES_MAX: Final = 1024
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
WHOLE_WITHIN: Final = 1e-6
"""Kafka's tolerance for rates in bytes, which are whole numbers in ZooKeeper and 64-bit floats on the wire."""
REMEMBERED_MAX: Final = 10_000
"""Limits found before; clients make up their ids."""


class QuotaKey(StrEnum):
    """Kafka's names, each with ``unit``, that of its values as shown, and ``whole_max``, the maximum of a quota that is
    a whole number; None: it need not be one."""

    unit: str
    whole_max: int | None

    PRODUCER_BYTE_RATE = "producer_byte_rate", "bytes/s", LONG_MAX
    """Bytes of produce requests per second."""
    CONSUMER_BYTE_RATE = "consumer_byte_rate", "bytes/s", LONG_MAX
    """Bytes of records in fetch answers per second."""
    REQUEST_PERCENTAGE = "request_percentage", "percent", None
    """Time of the event loop, in percent."""
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate", "partitions/s", None
    """Partitions created and deleted per second."""
    CONNECTION_CREATION_RATE = "connection_creation_rate", "connections/s", INT_MAX
    """New connections of an address per second."""

    def __new__(cls, name: str, unit: str = "", whole_max: int | None = None) -> QuotaKey:
        """The defaults are for mypy: to it a look-up by name calls this."""
        key = str.__new__(cls, name)
        key._value_, key.unit, key.whole_max = name, unit, whole_max
        return key

    @property
    def is_of_addresses(self) -> bool:
        """Whether it belongs to addresses; else to users and client ids."""
        return self is QuotaKey.CONNECTION_CREATION_RATE


class ThrottlingQuotaExceeded(RequestError, wire=89, retriable=True):
    """The request may be sent again after the throttle time of the answer (KIP-599)."""


class Entity(NamedTuple):
    """An address, a user, a client id, or a user's client id; `DEFAULT` for the default, None for the other parts."""

    user: str | None = None
    client: str | None = None
    ip: str | None = None
    """In the form of `plain_address`."""

    def __str__(self) -> str:
        parts = (("user", self.user), ("client", self.client), ("address", self.ip))
        return " ".join(
            f"the default {what}" if name == DEFAULT else f"{what} {name!r}" for what, name in parts if name is not None
        )

    @property
    def path(self) -> str:
        """Kafka's: ``users/alice/clients/app``, ``ips/10.0.0.7``, names in percent-encoding."""
        if self.ip is not None:
            return f"ips/{node_of(self.ip)}"
        parts = []
        if self.user is not None:
            parts.append(f"users/{node_of(self.user)}")
        if self.client is not None:
            parts.append(f"clients/{node_of(self.client)}")
        return "/".join(parts)

    @classmethod
    def of_path(cls, path: str) -> Entity | None:
        """Parse `path`; None for another path, as that of a topic's settings."""
        parts = path.split("/")
        match parts:
            case ["users", user] if user:
                return cls(user=name_of(user))
            case ["clients", client] if client:
                return cls(client=name_of(client))
            case ["ips", ip] if ip:
                return cls(ip=name_of(ip))
            case ["users", user, "clients", client] if user and client:
                return cls(name_of(user), name_of(client))
        return None


ENTITY_TYPES: Final = ("user", "client-id", "ip")
"""The names of an `Entity`, in its order, as requests call them (KIP-546, KIP-612)."""


def node_of(name: str) -> str:
    """The node's name: as Kafka encodes names; ``<default>`` cannot result from one."""
    return DEFAULT_NODE if name == DEFAULT else quote(name, safe="").replace("~", "%7E")


def name_of(node: str) -> str:
    """The inverse of `node_of`."""
    return DEFAULT if node == DEFAULT_NODE else unquote(node)


def check_entity(entity: Entity) -> Entity:
    """The entity, an address in its plain form. Raises InvalidRequest for an impossible one."""
    if entity.ip is not None:
        if entity.user is not None or entity.client is not None:
            raise InvalidRequest("a quota of an address cannot have a user or a client id, too")
        return Entity(ip=entity.ip if entity.ip == DEFAULT else plain_ip(entity.ip))
    if entity.user is None and entity.client is None:
        raise InvalidRequest("a quota needs a user, a client id or an address")
    for what, name in (("user", entity.user), ("client id", entity.client)):
        if name is None:
            continue
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            raise InvalidRequest(f"the {what} {name!r} is not valid Unicode") from None
        if size > NAME_BYTES_MAX:
            raise InvalidRequest(f"the {what} of a quota has {size} bytes; {NAME_BYTES_MAX} are allowed")
        if name in (".", ".."):
            raise InvalidRequest(f"the {what} of a quota cannot be {name!r}: ZooKeeper has no node of that name")
    return entity


def plain_ip(text: str) -> str:
    """An address in the form of peers' addresses. Raises InvalidRequest for anything else, such as a host name."""
    try:
        found = ip_address(text)
    except ValueError:
        raise InvalidRequest(f"{text[:80]!r} is not an IP address") from None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)


def check_kind(entity: Entity, key: QuotaKey) -> None:
    """Raise InvalidRequest where an entity of this kind cannot have this quota."""
    if key.is_of_addresses and entity.ip is None:
        raise InvalidRequest(f"{key} is a quota of addresses, not of {entity}")
    if not key.is_of_addresses and entity.ip is not None:
        raise InvalidRequest(f"{key} is a quota of users and client ids, not of {entity}")


def parse_key(text: str) -> QuotaKey:
    """Raises InvalidRequest for a quota that does not exist."""
    try:
        return QuotaKey(text)
    except ValueError:
        raise InvalidRequest(f"quota {text!r} does not exist: expected {', '.join(QuotaKey)}") from None


def check_value(key: QuotaKey, value: float) -> float:
    """Return the value. Raises InvalidRequest if the quota cannot have it."""
    if not math.isfinite(value) or value <= 0:
        raise InvalidRequest(f"{key} must be a number above 0, got {value:g}")
    most = key.whole_max
    if most is None:
        return value
    whole = round(value)
    if abs(value - whole) > WHOLE_WITHIN or not 1 <= whole <= most:
        raise InvalidRequest(f"{key} must be a whole number of {key.unit} from 1 to {most}, got {value:g}")
    return float(whole)


def text_of(key: QuotaKey, value: float) -> str:
    """A value as stored and shown: ``1048576``, ``12.5``."""
    return str(int(value)) if key.whole_max or value == int(value) else repr(value)


def told_value(key: QuotaKey, value: float) -> str:
    """A value with its unit: ``1048576 bytes/s``."""
    return f"{text_of(key, value)} {key.unit}"


def parse_value(key: QuotaKey, text: str) -> float:
    """Parse a stored value. Raises InvalidRequest."""
    try:
        value = float(text)
    except ValueError:
        raise InvalidRequest(f"{key} must be a number, got {text[:40]!r}") from None
    return check_value(key, value)


@dataclass(frozen=True, slots=True)
class Limit:
    """``rate``: in the quota's unit, per second or percent."""

    rate: float
    scope: Entity
    """The clients that share it, by their own names: a client id of a user, all clients of a user, all users of a
    client id, or all connections from an address."""
    entity: Entity
    """The quota's entity."""

    @property
    def shared_by(self) -> str:
        """The clients that share it, in words."""
        if self.scope.ip is not None:
            return f"all connections from {self.scope.ip}"
        if self.scope.client is None:
            return f"all clients of user {self.scope.user!r} together"
        if self.scope.user is None:
            return f"all clients with client id {self.scope.client!r} together"
        return f"client id {self.scope.client!r} of user {self.scope.user!r}"


Values = Mapping[QuotaKey, float]


class QuotaTable:
    """All quotas of a cluster. For one thread."""

    def __init__(self, quotas: Mapping[Entity, Values] | None = None) -> None:
        self.quotas: dict[Entity, Values] = {}
        self.keys: frozenset[QuotaKey] = frozenset()
        """Quotas that any entity has."""
        self._having: Counter[QuotaKey] = Counter()
        self._found = lru_cache(REMEMBERED_MAX)(self._look_up)
        self.limits_requests = False
        """Whether any user or client id has a quota."""
        self.change(quotas or {})

    def change(self, quotas: Mapping[Entity, Values]) -> None:
        """Replace the quotas of these entities; empty values remove them. Does not look at others: there may be
        many."""
        for entity, values in quotas.items():
            self._having.subtract(self.quotas.pop(entity, {}).keys())
            self._having.update(values.keys())
            if values:
                self.quotas[entity] = values
        self.keys = frozenset(key for key, count in self._having.items() if count)
        self.limits_requests = not all(key.is_of_addresses for key in self.keys)
        self._found.cache_clear()

    def __bool__(self) -> bool:
        return bool(self.quotas)

    def limit(self, key: QuotaKey, user: str, client: str) -> Limit | None:
        """The limit of a user's client id; None: unlimited."""
        return self._found(key, user, client) if key in self.keys else None

    def connection_limit(self, ip: str) -> Limit | None:
        """The limit of new connections per second from an address; None: unlimited."""
        key = QuotaKey.CONNECTION_CREATION_RATE
        if key not in self.keys:
            return None
        for entity in (Entity(ip=ip), Entity(ip=DEFAULT)):
            rate = self.quotas.get(entity, {}).get(key)
            if rate is not None:
                return Limit(rate, Entity(ip=ip), entity)
        return None

    def _look_up(self, key: QuotaKey, user: str, client: str) -> Limit | None:
        for entity in precedence(user, client):
            rate = self.quotas.get(entity, {}).get(key)
            if rate is not None:
                scope = Entity(None if entity.user is None else user, None if entity.client is None else client)
                return Limit(rate, scope, entity)
        return None


def precedence(user: str, client: str) -> tuple[Entity, ...]:
    """The entities whose quota may apply, the most specific first (KIP-55)."""
    return (
        Entity(user, client),
        Entity(user, DEFAULT),
        Entity(user),
        Entity(DEFAULT, client),
        Entity(DEFAULT, DEFAULT),
        Entity(DEFAULT),
        Entity(None, client),
        Entity(None, DEFAULT),
    )
