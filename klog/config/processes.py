"""One configuration divided among several brokers on a host: each has its own id, ports and log dirs.

Broker ``i`` of N, counted from 0, gets:

* ``broker.id`` + i;
* each port + i: of `listeners` or `port`, of advertised ones, and of metrics and schemas. Port 0 stays 0;
* its share of `log.dirs`: every N-th dir from the i-th on. With fewer dirs than brokers, the first brokers get a dir
  each, the others a folder ``broker.ID`` in one of them. So the first broker finds its logs where they were when it was
  the only one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from klog.config.broker import BrokerConfig
from klog.config.table_network import parse_listener
from klog.errors import InvalidConfig

SOURCE: Final = "--processes"
PORT_MAX: Final = 65535
_PORTS: Final = ("port", "advertised.port", "metrics.port", "schema.registry.port")
_LISTENERS: Final = ("listeners", "advertised.listeners")


def configs_of_processes(config: BrokerConfig, count: int) -> list[BrokerConfig]:
    """The configurations of ``count`` brokers. Raises InvalidConfig for ports above 65535 or equal ones."""
    layers = config.layers()
    configs = [BrokerConfig.layered([*layers, (SOURCE, dict(_own(config, number, count)))]) for number in range(count)]
    taken: dict[int, tuple[int, str]] = {}
    for one in configs:
        broker = one.integer("broker.id")
        for name, port in _bound(one):
            if port in taken:
                other, others = taken[port]
                raise InvalidConfig(
                    f"port {port} would be that of {others} of broker {other}, and of {name} of broker {broker}",
                    hint=f"each of {count} brokers takes the next port: leave {count} between those of one broker",
                )
            taken[port] = broker, name
    return configs


def folder_of(log_dir: str, broker: int) -> str:
    """A broker's folder in another's log dir. Its name has no dash, which folders of partitions have."""
    return os.path.join(log_dir, f"broker.{broker}")


def _own(config: BrokerConfig, number: int, count: int) -> Iterator[tuple[str, str]]:
    broker = config.integer("broker.id") + number
    yield "broker.id", str(broker)
    for name in _LISTENERS:
        texts = config[name]
        if isinstance(texts, tuple):
            own = (one._replace(port=_raised(one.port, number, name)) for one in map(parse_listener, texts))
            yield name, ",".join(map(str, own))
    for name in _PORTS:
        port = config[name]
        if isinstance(port, int) and port and (name != "port" or config["listeners"] is None):
            yield name, str(_raised(port, number, name))
    dirs = config.log_dirs
    yield "log.dirs", ",".join(dirs[number::count] or (folder_of(dirs[number % len(dirs)], broker),))


def _raised(port: int, number: int, name: str) -> int:
    if not port:
        return 0
    if port + number > PORT_MAX:
        raise InvalidConfig(
            f"{name}: broker {number + 1} of those on this host would have port {port + number}; the last is {PORT_MAX}"
        )
    return port + number


def _bound(config: BrokerConfig) -> list[tuple[str, int]]:
    """Ports bound on this host; advertised ones may be the same for several, on a gateway."""
    name = "port" if config["listeners"] is None else "listeners"
    ports = [(name, one.port) for one in config.listeners.all]
    ports += [(one, config.integer(one)) for one in ("metrics.port", "schema.registry.port")]
    return [(name, port) for name, port in ports if port > 0]
