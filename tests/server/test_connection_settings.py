"""What the settings of connections and of their memory become."""

from __future__ import annotations

import math

import pytest

from klog.config import BrokerConfig
from klog.errors import InvalidConfig
from klog.host import limits
from klog.host.limits import divide
from klog.server import listening
from klog.server.config_resources import broker_entries
from klog.server.event_limits import WINDOW_S
from klog.server.listening import arrival_limits, connection_limits, unfinished_bytes_max
from tests.rows import each

TWO = {
    "listeners": "CLIENTS://127.0.0.1:0,BETWEEN://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BETWEEN:PLAINTEXT",
    "inter.broker.listener.name": "BETWEEN",
}
MIB = 1 << 20


def config(**settings: str) -> BrokerConfig:
    made = BrokerConfig.parse({**TWO, **{name.replace("__", "."): value for name, value in settings.items()}})
    assert not made.warnings
    return made


def test_limits_of_all_of_listeners_and_of_addresses() -> None:
    found = connection_limits(
        config(
            max__connections="100",
            listener__name__clients__max__connections="40",
            max__connections__per__ip="7",
            max__connections__per__ip__overrides="10.0.0.1:200,localhost:3,[::2]:5,::ffff:10.0.0.9:1",
        ),
        divide(10_000),
    )
    assert (found.total, found.total_from, found.per_ip) == (100, "max.connections", 7)
    assert found.per_listener == {"CLIENTS": 40}
    assert found.listener_of_brokers == "BETWEEN"
    names = dict(found.per_ip_overrides)
    assert names.pop("127.0.0.1") == 3
    names.pop("::1", None)  # where the machine has it
    assert names == {"10.0.0.1": 200, "::2": 5, "10.0.0.9": 1}


def test_rates_of_all_and_of_listeners() -> None:
    found = arrival_limits(
        config(max__connection__creation__rate="50", listener__name__clients__max__connection__creation__rate="20")
    )
    assert (found.total, found.per_listener, found.listener_of_brokers) == (50, {"CLIENTS": 20}, "BETWEEN")
    assert found.windows == (11, 1)
    free = arrival_limits(BrokerConfig.parse({}))
    assert (free.total, free.per_listener, free.listener_of_brokers) == (None, {}, None)


def test_the_value_that_the_machine_decides_is_shown() -> None:
    for given, shown in (({}, str(unfinished_bytes_max(config()))), ({"queued__max__request__bytes": "-1"}, "-1")):
        (entry,) = [one for one in broker_entries(config(**given)) if one["name"] == "queued.max.request.bytes"]
        assert entry["value"] == shown


def test_the_descriptors_bound_the_total_too() -> None:
    found = connection_limits(config(), divide(1000))
    assert found.total == divide(1000).connections
    assert "ulimit -n" in found.total_from


def test_one_listener_for_all_gives_brokers_no_privilege() -> None:
    assert connection_limits(BrokerConfig.parse({}), divide(1000)).listener_of_brokers is None


@each("text", ["10.0.0.1", "10.0.0.1:", ":5", "10.0.0.1:-1", "no.such.host.invalid:5"])
def test_overrides_that_name_no_address(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"max\.connections\.per\.ip\.overrides"):
        connection_limits(config(max__connections__per__ip__overrides=text), divide(1000))


@each(
    ("machine", "expected"), [(1 << 30, 64 * MIB), (8 << 30, 256 * MIB), (16 << 30, 512 * MIB), (1 << 40, 1024 * MIB)]
)
def test_the_memory_for_requests_follows_the_machines(
    monkeypatch: pytest.MonkeyPatch, machine: int, expected: int
) -> None:
    monkeypatch.setattr(listening, "machine_memory_bytes", lambda: machine)
    assert unfinished_bytes_max(config()) == expected
    assert unfinished_bytes_max(config(queued__max__request__bytes="5")) == 5
    assert unfinished_bytes_max(config(queued__max__request__bytes="-1")) == math.inf


def test_the_machine_has_some_memory() -> None:
    assert limits.machine_memory_bytes() > 100 * MIB


def test_a_listener_that_fills_again_and_again_is_told_seldom() -> None:
    told: list[str] = []
    now_s = 0.0
    listeners = listening.FullListeners(lambda kind, **facts: told.append(facts["listener"]), lambda: now_s)
    for _ in range(100):
        listeners.note("CLIENTS", "max.connections", 5, "10.0.0.1 (5)")
    assert len(told) == listening.FULL_EVENTS_A_MINUTE
    now_s = WINDOW_S + 1
    listeners.note("CLIENTS", "max.connections", 5, "10.0.0.1 (5)")
    assert len(told) == listening.FULL_EVENTS_A_MINUTE + 1
