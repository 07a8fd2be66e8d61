"""Events folded by cause: the stories of deaths, restarts and new topics; and that no event is ever left out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from klog.event_kinds import EVENT_KINDS
from klog.tools.events import Event, in_turn
from klog.tools.history import StoryRow, fold

BEGIN = datetime(2026, 2, 1, 3, tzinfo=UTC)


def at(seconds: float, kind: str, **fields: Any) -> Event:
    when = (BEGIN + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
    return {"ts": when, "broker": 1, "kind": kind, **fields}


def led(seconds: float, partition: int, leader: int, old: int, reason: str, topic: str = "t") -> Event:
    led = {"leader": leader, "old_leader": old, "leader_epoch": 3, "isr": [leader], "reason": reason}
    return at(seconds, "leader-elected", topic=topic, partition=partition, **led)


def act(seconds: float, what: str, **fields: Any) -> Event:
    return at(seconds, "act", act=f"act-{seconds}", what=what, client="klog", host="h", principal="User:al", **fields)


def down(seconds: float, broker: int, reason: str = "it stopped answering: connections are refused") -> Event:
    return at(seconds, "broker-down", id=broker, host="h", port=9090 + broker, reason=reason)


def up(seconds: float, broker: int) -> Event:
    return at(seconds, "broker-up", id=broker, host="h", port=9090 + broker)


def expanded(seconds: float, partition: int, came: int) -> Event:
    return at(seconds, "isr-expanded", topic="t", partition=partition, isr=[1, came], old_isr=[1], reason="caught up")


def told(*events: Event) -> list[StoryRow]:
    rows = fold(events)
    assert sum(row.events for row in rows) == len(events)
    return rows


def test_a_death_is_one_story_with_all_that_it_did_and_its_end() -> None:
    (one,) = told(
        down(0, 2),
        led(0.1, 0, 1, 2, "broker 2 stopped answering: connections are refused; 1 is the first in sync"),
        led(0.1, 1, 1, 2, "broker 2 stopped answering: connections are refused; 1 is the first in sync"),
        down(5, 2),
        up(60, 2),
        expanded(60.5, 0, 2),
        led(300, 0, 2, 1, "2 is the preferred replica"),
    )
    assert "broker 2" in one.what and "2 partitions" in one.what and "1 min" in one.what and one.undo is None


def test_a_story_is_told_whole_where_one_of_its_events_is_wanted() -> None:
    events = [down(0, 2), led(0.1, 0, 1, 2, "broker 2 stopped answering"), up(5, 2), down(900, 3), up(902, 3)]
    (one,) = fold(events, lambda event: event.get("topic") == "t")
    assert "broker 2" in one.what and "back after" in one.what and one.events == 3
    assert fold(events, lambda event: False) == []


def test_brokers_that_die_together_are_one_story() -> None:
    (one,) = told(down(0, 2), down(0.5, 3), down(4, 3))
    assert "2,3" in one.what
    apart = told(down(0, 2), down(500, 3))
    assert len(apart) == 2


def test_a_rolling_restart_is_one_line_and_a_single_one_too() -> None:
    def restart(begin: float, broker: int) -> list[Event]:
        shutting = f"broker {broker} is shutting down"
        return [
            act(begin, "broker-restart", id=broker),
            led(begin + 0.1, 0, 3 - broker if broker < 3 else 1, broker, shutting),
            down(begin + 0.2, broker, "it shut down at 03:00:00"),
            at(begin + 0.3, "controller-elected", controller=9, controller_epoch=4),
            up(begin + 2, broker),
            expanded(begin + 3, 0, broker),
        ]

    (one,) = told(*restart(0, 2))
    assert "broker 2" in one.what and "User:al" in (one.cause or "") and one.undo is None
    (rolling,) = told(*restart(0, 1), *restart(20, 2), *restart(40, 3))
    assert "1,2,3" in rolling.what and rolling.events == 18
    assert len(told(*restart(0, 1), *restart(4_000, 2))) == 2, "an hour apart"
    assert len(told(*restart(0, 1), down(20, 2))) == 2, "a restart and a death"


def test_a_topic_is_made_and_changed_by_an_act() -> None:
    made, changed = told(
        at(0, "topic-created", topic="t", partitions=2, replication_factor=1),
        act(0.1, "topic-create", topic="t"),
        led(0.2, 0, 1, -1, "it is new"),
        led(0.2, 1, 1, -1, "it is new"),
        act(60, "topic-settings", topic="t"),
        at(60.1, "settings-changed", topic="t", settings={"retention.ms": "5"}),
    )
    assert "User:al" in (made.cause or "") and made.undo is None, "a creation cannot be taken back"
    assert changed.undo == "act-60"


def test_like_events_are_one_and_others_stay_apart() -> None:
    rebalances = [at(n, "rebalance", group="g", generation=n, members=[], reason=f"m{n} joined") for n in range(4)]
    others = [at(0, "rebalance", group="h", generation=1, members=[], reason="m joined")]
    assert sorted(row.events for row in told(*rebalances, *others)) == [1, 4]
    assert len(told(at(0, "clock-skew", id=1, ahead_ms=5), at(0, "clock-skew", id=2, ahead_ms=5))) <= 2


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.sampled_from(["t", "u", 3]),
        "group": st.sampled_from(["g", None]),
        "id": st.one_of(st.integers(-1, 4), st.just("2"), st.just(True)),
        "leader": st.integers(-1, 4),
        "old_leader": st.integers(-1, 4),
        "isr": st.lists(st.integers(1, 4), max_size=3),
        "old_isr": st.lists(st.integers(1, 4), max_size=3),
        "reason": st.sampled_from(["it is new", "broker 2 is shutting down", "2 is the preferred replica", 7, None]),
        "what": st.sampled_from(["broker-stop", "topic-create", "quotas", 5]),
        "ts": st.sampled_from(["2026-02-01T03:00:01Z", "soon", None]),
    },
)
STRANGE = st.builds(
    lambda seconds, kind, fields: {**at(seconds, kind), **fields},
    st.integers(0, 10_000),
    st.sampled_from([*EVENT_KINDS, "?", "of-tomorrow"]),
    FIELDS,
)


@given(st.lists(STRANGE, max_size=25))
def test_no_event_is_left_out_whatever_a_stranger_writes(events: list[Event]) -> None:
    ordered = in_turn(events)
    assert sorted(map(id, ordered)) == sorted(map(id, events))
    assert sum(row.events for row in fold(ordered)) == len(events)
