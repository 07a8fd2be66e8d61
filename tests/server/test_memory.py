"""What a broker keeps of requests that are over: nothing, of any kind of them (rule P2)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from klog.errors import CannotConnect, CoordinatorNotAvailable, InvalidRequest, UnknownMemberId
from tests.broker_fixture import RunningBroker
from tests.server.asking import create
from tests.server.garbage import alive_in, counting, garbage_of
from tests.server.memory_load import (
    KINDS,
    ROUND,
    Kind,
    ask_many,
    ask_together,
    decoded,
    heartbeat,
    join,
    live_and_leave,
)
from tests.server.wire import RawConnection, framed, head, resident_bytes

MakeBroker = Callable[..., RunningBroker]
COUNT = 200
LIBRARIES = 600
"""Objects in cycles that libraries leave now and then; a cycle a request would be more."""
KAZOO_RESULT = "kazoo.handlers.threading.AsyncResult"
KAZOO_CYCLE = 40
"""Objects of the cycle that kazoo leaves of each folder that it makes with those above it: some 33."""


@pytest.mark.long("each request in turn, with the collector at work")
def test_no_request_leaves_a_cycle(make_broker: MakeBroker, topic: str) -> None:
    """Cycles are freed by the collector alone, which a broker runs seldom: what is in them may be a whole request."""
    broker = counting(make_broker(auto__create__topics__enable="false"))
    create(broker.bootstrap, topic)
    left: dict[str, Counter[str]] = {}
    with RawConnection(broker.bootstrap) as connection:
        for name, kind in KINDS.items():
            ask_many(connection, kind, topic, 10)  # what the first of its kind makes, a group say, is made
            garbage_of(broker)
            ask_many(connection, kind, topic, COUNT)
            left[name] = garbage_of(broker)
        live_and_leave(connection, topic, 1)
        garbage_of(broker)
        live_and_leave(connection, topic, 2)
        left["a member's life"] = garbage_of(broker)
    for _ in range(COUNT):
        with RawConnection(broker.bootstrap) as connection:
            connection.send(framed(head(18, 0)))
            connection.answer()
    left["connections"] = garbage_of(broker)
    for _ in range(COUNT):
        with RawConnection(broker.bootstrap) as connection:
            connection.send(framed(head(1, 99)))
            assert connection.is_closed_by_broker()
    left["connections: closed on"] = garbage_of(broker)
    of_others = {name: found.total() - KAZOO_CYCLE * found[KAZOO_RESULT] for name, found in left.items()}
    assert not {name: left[name] for name, total in of_others.items() if total > LIBRARIES}


FLAT_BYTES = 10_000_000
AT_REST_WITHIN_S = 15.0


def grown(broker: RunningBroker, topic: str, count: int, large: int = 0) -> dict[str, int]:
    """By how many bytes the broker has grown with ``count`` requests of each kind; and with all of them."""
    sizes: dict[str, int] = {}
    with RawConnection(broker.bootstrap) as connection:

        def measured(name: str, load: Callable[[int], None], times: int) -> None:
            load(max(times // 10, 1))  # what the first of its kind makes, pools and caches, is made
            before = resident_bytes(broker.pid)
            load(times)
            sizes[name] = grown_by(broker, before)

        loads: dict[str, tuple[Callable[[int], None], int]] = {
            name: (partial(ask_many, connection, kind, topic), count) for name, kind in KINDS.items()
        }
        loads["members' lives"] = (partial(live_and_leave, connection, topic), max(count // ROUND, 1))
        wide = Kind(lambda t, n: join(t, metadata=bytes(20 << 20)), KINDS["join: session"].code, InvalidRequest.wire)
        loads["joins of 20 MB"] = (lambda times: ask_many(connection, wide, topic, times, 1), large)
        for name, (load, times) in loads.items():
            measured(name, load, times)
        began = resident_bytes(broker.pid)
        for load, times in loads.values():
            load(max(times // 4, 1))
        sizes["all together, once more"] = grown_by(broker, began)
    return sizes


def grown_by(broker: RunningBroker, before: int) -> int:
    """What it has more when it is at rest: the last answer goes out before its request's bytes are free."""
    deadline = time.monotonic() + AT_REST_WITHIN_S
    while (size := resident_bytes(broker.pid) - before) > FLAT_BYTES and time.monotonic() < deadline:
        time.sleep(0.1)
    return size


@pytest.mark.long("what hundreds of requests of each kind leave in memory")
def test_memory_stays_flat(make_broker: MakeBroker, topic: str) -> None:
    broker = make_broker(auto__create__topics__enable="false").start()
    create(broker.bootstrap, topic)
    sizes = grown(broker, topic, 200, large=15)
    assert not {name: size for name, size in sizes.items() if size > FLAT_BYTES}


@pytest.mark.timed
@pytest.mark.timeout(7200)
def test_memory_stays_flat_after_a_hundred_thousand_of_each(make_broker: MakeBroker, topic: str) -> None:
    """Half an hour. `pytest -s -m timed` shows the figures."""
    broker = make_broker(auto__create__topics__enable="false").start()
    create(broker.bootstrap, topic, retention_bytes="100000000")
    sizes = grown(broker, topic, 100_000, large=150)
    for name, size in sizes.items():
        print(f"{size / 1e6:+8.2f} MB  {name}")
    assert not {name: size for name, size in sizes.items() if size > FLAT_BYTES}


def test_of_groups_in_which_nobody_lives_few_are_kept_and_members_say_no_more_than_is_kept(
    make_broker: MakeBroker, topic: str
) -> None:
    broker = counting(make_broker(), IDLE_GROUPS_MAX=50, BROKER_BYTES_MAX=300_000)
    beat = Kind(lambda t, n: heartbeat(f"{t}-{n}", "nobody"), lambda answer: answer.error_code, UnknownMemberId.wire)
    with RawConnection(broker.bootstrap) as connection:
        ask_many(connection, beat, topic, 500)
        assert 25 <= alive_in(broker)["CachedGroup"] <= 50 + ROUND
    with RawConnection(broker.bootstrap) as connection:
        requests = [join(f"{topic}-{number}", metadata=b"m" * 50_000) for number in range(10)]
        codes = [decoded(one, requests[0]).error_code.value for one in ask_together(connection, requests)]
        assert sorted(codes) == [0] * 5 + [CoordinatorNotAvailable.wire] * 5
        ask_many(connection, Kind(lambda t, n: join(t), lambda answer: answer.error_code), f"{topic}-small", 1)


def test_a_bare_error_says_the_same_without_frames() -> None:
    try:
        try:
            raise KeyError("first")
        except KeyError as first:
            raise CannotConnect("nobody listens", hint="start it", is_refused=True) from first
    except CannotConnect as error:
        bare = error.bare()
        assert (error.__traceback__, error.__cause__) != (None, None)
    assert (bare.__traceback__, bare.__cause__, bare.__context__) == (None, None, None)
    assert type(bare) is CannotConnect
    assert (str(bare), bare.message, bare.hint, bare.is_refused) == (
        "nobody listens",
        "nobody listens",
        "start it",
        True,
    )
    assert bare.__notes__ == ["hint: start it"]
