"""Goal: what a broker remembers of itself is bounded and right.

Method: readings of chosen moments, and a real broker.
"""

from __future__ import annotations

from klog.protocol.apis import ApiKey
from klog.server.history import EVERY_S, NAMES, POINTS_MAX, RATES, History, Reading
from tests.broker_fixture import RunningBroker
from tests.server.asking import ask, create, produce, values


def reading(minute: float, counter: float) -> Reading:
    return Reading(minute * EVERY_S, int(minute * EVERY_S * 1000), (counter,) * len(RATES), (7.0, 8.0, 9.0))


def test_rates_are_of_the_time_since_the_point_before() -> None:
    history = History(reading(0, 0))
    history.add(reading(1, 600))
    history.add(reading(2, 600))
    first, second, unfinished = history.points(0, reading(2.5, 900))
    assert list(first.values) == [10.0] * len(RATES) + [7.0, 8.0, 9.0]
    assert set(second.values[: len(RATES)]) == {0.0} and set(unfinished.values[: len(RATES)]) == {10.0}
    assert [one.time_ms for one in history.points(60_000, reading(2.5, 0))] == [120_000, 150_000]


def test_a_counter_never_falls_and_days_are_forgotten() -> None:
    history = History(reading(0, 100))
    for minute in range(1, POINTS_MAX + 100):
        history.add(reading(minute, 0 if minute == 1 else minute))
    points = history.points(0, reading(POINTS_MAX + 100, 5000))
    assert len(points) == POINTS_MAX + 1 and points[0].time_ms == 100 * 60_000
    assert all(value >= 0 for one in points for value in one.values)


def test_a_broker_tells_its_unfinished_minute(broker: RunningBroker, topic: str) -> None:
    create(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, [values(1000)])
    answer = ask(broker.bootstrap, ApiKey.READ_HISTORY, 0, since_ms=0)
    assert answer.names == NAMES and answer.every_ms == 60_000
    found = dict(zip(answer.names, answer.points[-1].values, strict=True))
    assert found["memory_bytes"] > 10_000_000 and found["requests"] > 0
    assert sum(one.values[0] for one in answer.points) > 0
    later = ask(broker.bootstrap, ApiKey.READ_HISTORY, 0, since_ms=answer.now_ms + 3_600_000)
    assert later.points == ()
