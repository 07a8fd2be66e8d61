"""The listeners of a broker from its settings: bound address, protocol, advertised address."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from klog.config.table_network import LISTENER_PROTOCOL, PROTOCOLS, NamedAddress, parse_listener
from klog.errors import InvalidConfig


class Listener(NamedTuple):
    """An empty ``host`` is every interface, ``port`` 0 a free one; ``told_*`` is advertised, None for the same."""

    name: str
    protocol: str
    host: str
    port: int
    told_host: str | None
    told_port: int | None

    @property
    def told(self) -> tuple[str | None, int | None]:
        return self.told_host, self.told_port

    @property
    def has_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")


@dataclass(frozen=True, slots=True)
class Listeners:
    """``clients``: the first plaintext listener that is not for brokers alone, or else the first: for clients and tools
    that know one address only. ``brokers`` may be the same."""

    all: tuple[Listener, ...]
    clients: Listener
    brokers: Listener


def listeners_of(value: Callable[[str], Any]) -> Listeners:
    """The listeners from the values of settings, by name. Raises InvalidConfig, about ``listeners`` unless its text
    names another.

    ``inter.broker.listener.name`` may be missing in the map: then it is plaintext. Without a listener of that name,
    brokers use the first one.
    """
    told, brokers_name = value("advertised.listeners"), value("inter.broker.listener.name")
    found = [parse_listener(one) for one in value("listeners") or ()]
    found = found or [NamedAddress(LISTENER_PROTOCOL, value("host.name"), value("port"))]
    pairs = (one.partition(":") for one in value("listener.security.protocol.map"))
    protocols = {name: protocol for name, _, protocol in pairs}
    if brokers_name is not None:
        protocols.setdefault(brokers_name, LISTENER_PROTOCOL)
    advertised = _advertised(told, [one.name for one in found])
    made: list[Listener] = []
    for one in found:
        protocol = protocols.get(one.name, one.name if one.name in PROTOCOLS else None)
        if protocol is None:
            raise InvalidConfig(
                f"{one.name} has no security protocol: expected one of {', '.join(PROTOCOLS)}, a name in "
                "listener.security.protocol.map, or the one that inter.broker.listener.name gives"
            )
        if one.name in {other.name for other in made}:
            raise InvalidConfig(f"two have the name {one.name}; expected PLAINTEXT://HOST:PORT,NAME://HOST:PORT")
        if told is None:  # what names no listener holds for the first
            at = (None, None) if made else (value("advertised.host.name"), value("advertised.port"))
        else:
            at = advertised.get(one.name, (None, None))
        made.append(Listener(one.name, protocol, one.host, one.port, *at))
    brokers = _of_brokers(made, brokers_name, value("security.inter.broker.protocol"))
    for_clients = [one for one in made if brokers_name is None or one is not brokers] or made
    clients = next((one for one in for_clients if one.protocol == LISTENER_PROTOCOL), for_clients[0])
    return Listeners(tuple(made), clients, brokers)


def _of_brokers(made: list[Listener], name: str | None, protocol: str) -> Listener:
    if name is not None:
        return next((one for one in made if one.name == name), made[0])
    found = next((one for one in made if one.protocol == protocol), None)
    if found is None and protocol != LISTENER_PROTOCOL:
        raise InvalidConfig(f"none speaks {protocol}, which security.inter.broker.protocol gives")
    if found is None and len(made) > 1:
        raise InvalidConfig(
            f"none has the protocol {protocol} that brokers use among themselves",
            hint="name one of them in inter.broker.listener.name",
        )
    return found or made[0]


def _advertised(told: tuple[str, ...] | None, names: list[str]) -> Mapping[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for one in (parse_listener(text) for text in told or ()):
        shown = f"advertised.listeners={one}"
        if one.name not in names:
            raise InvalidConfig(f"{shown}: listeners has no listener of that name, but {', '.join(names)}")
        if one.name in found:
            raise InvalidConfig(f"{shown}: it is given twice")
        if not one.host or not one.port:
            raise InvalidConfig(f"{shown}: expected a host and a port that can be connected to")
        found[one.name] = (one.host, one.port)
    return found
