"""One configuration shared out to the brokers of a host: each has an id, ports and log dirs that no other one has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.config import BrokerConfig
from klog.config.processes import configs_of_processes
from klog.errors import InvalidConfig
from tests.rows import each


def shared(count: int, **settings: str) -> list[BrokerConfig]:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return configs_of_processes(BrokerConfig.parse({"broker.id": "7", "log.dirs": "/a", **named}, "a test"), count)


def test_ids_and_ports_count_up() -> None:
    configs = shared(3, port="9092", metrics__port="9500", schema__registry__port="0", advertised__host__name="gate")
    assert [one.integer("broker.id") for one in configs] == [7, 8, 9]
    assert [one.listeners.clients[2:4] for one in configs] == [("127.0.0.1", port) for port in (9092, 9093, 9094)]
    assert [one.integer("metrics.port") for one in configs] == [9500, 9501, 9502]
    assert [one.integer("schema.registry.port") for one in configs] == [0, 0, 0]
    assert {one.listeners.clients.told for one in configs} == {("gate", None)}
    assert configs[0].source("metrics.port") == "--processes"


def test_listeners_of_their_own_for_brokers_count_up_too() -> None:
    first, second = shared(2, listeners="PLAINTEXT://[::1]:9092,IN://h:9192", inter__broker__listener__name="IN")
    assert (first.listeners.clients[2:4], first.listeners.brokers[2:4]) == (("::1", 9092), ("h", 9192))
    assert (second.listeners.clients[2:4], second.listeners.brokers[2:4]) == (("::1", 9093), ("h", 9193))


@each(
    ("dirs", "count", "expected"),
    [
        ("/a", 1, [["/a"]]),
        ("/a", 3, [["/a"], ["/a/broker.8"], ["/a/broker.9"]]),
        ("/a,/b", 2, [["/a"], ["/b"]]),
        ("/a,/b", 3, [["/a"], ["/b"], ["/a/broker.9"]]),
        ("/a,/b,/c,/d,/e", 2, [["/a", "/c", "/e"], ["/b", "/d"]]),
    ],
)
def test_log_dirs_are_shared_out(dirs: str, count: int, expected: list[list[str]]) -> None:
    assert [list(one.log_dirs) for one in shared(count, log__dirs=dirs)] == expected


@given(st.integers(1, 20), st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8, unique=True))
def test_no_two_brokers_share_a_dir(count: int, names: list[str]) -> None:
    dirs = [path for one in shared(count, log__dirs=",".join(f"/{name}" for name in names)) for path in one.log_dirs]
    assert len(dirs) == len(set(dirs)) == max(count, len(names))
    assert {f"/{name}" for name in names} <= set(dirs)


@each(
    ("settings", "words"),
    [
        ({"port": "65534"}, "65535"),
        ({"port": "9092", "metrics__port": "9094"}, r"9094.*port.*metrics\.port|9094.*metrics\.port.*port"),
        ({"listeners": "PLAINTEXT://h:9092,IN://h:9093", "inter__broker__listener__name": "IN"}, "9093"),
    ],
)
def test_ports_that_are_too_many_or_meet(settings: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        shared(3, **settings)


def test_what_was_given_reaches_each_with_its_source() -> None:
    (_, second) = configs_of_processes(
        BrokerConfig.layered(
            [("a.properties", {"broker.id": "1", "brokerid": "1", "log.dirs": "/a", "num.partitions": "3"}), ("-X", {})]
        ),
        2,
    )
    assert (second.integer("num.partitions"), second.source("num.partitions")) == (3, "a.properties")
    again = BrokerConfig.layered(second.layers())
    assert again.layers() == second.layers()
