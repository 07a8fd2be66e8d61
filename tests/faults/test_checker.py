"""The checker catches each anomaly that is planted, and finds nothing in histories that are clean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.faults.checker import check
from tests.faults.history import (
    Assigned,
    Batch,
    Begun,
    End,
    Ended,
    Event,
    Fault,
    Polled,
    Replica,
    Shown,
)
from tests.rows import each


def clean() -> list[Event]:
    """Two producers, two consumers, one partition: five messages acknowledged, one refused, one unknown and there."""
    events: list[Event] = [Assigned(0.0, "c1", 0, 0), Assigned(0.0, "c2", 0, 0)]
    for number, offset in ((0, 0), (1, 70), (2, 210)):
        events += [
            Begun(number + 0.1, "p1", number, 0, f"p1-{number}"),
            Ended(number + 0.2, "p1", number, "ok", offset),
        ]
    for number, offset in ((0, 140), (1, 280)):
        events += [
            Begun(number + 3.1, "p2", number, 0, f"p2-{number}"),
            Ended(number + 3.2, "p2", number, "ok", offset),
        ]
    events += [Begun(5.1, "p2", 2, 0, "p2-2"), Ended(5.2, "p2", 2, "fail", error="refused")]
    events += [Begun(5.3, "p1", 3, 0, "p1-3"), Ended(5.4, "p1", 3, "info", error="timed out")]
    log = ((0, "p1-0"), (70, "p1-1"), (140, "p2-0"), (210, "p1-2"), (280, "p2-1"), (350, "p1-3"))
    events += [Shown(6.0, "c1", 0, 141), Polled(6.0, "c1", 0, log[:3])]
    events += [Fault(6.2, "kill", "1", False), Begun(6.3, "p1", 4, 0, "p1-4"), Ended(8.4, "p1", 4, "ok", 420)]
    events += [Fault(8.5, "kill", "1", True), Shown(8.6, "c1", 0, 421), Polled(8.7, "c1", 0, (*log[3:], (420, "p1-4")))]
    events += [Polled(9.0, "c2", 0, (*log, (420, "p1-4")), final=True), End(9.1, 0, 421)]
    batches = tuple(Batch(at, at, 70, at // 200, True, f"{at:x}") for at in range(0, 421, 70))
    return [*events, *(Replica(9.5, broker, 0, batches) for broker in (1, 2, 3))]


def swap(old: Callable[[Event], bool], new: Callable[[Event], Event | None]) -> list[Event]:
    """The clean history with every event that `old` picks replaced, or left out."""
    changed = [new(event) if old(event) else event for event in clean()]
    assert changed != clean(), "nothing was planted"
    return [event for event in changed if event is not None]


def polled(by: str, change: Callable[[tuple[tuple[int, str], ...]], list[tuple[int, str]]]) -> list[Event]:
    """The clean history with what a consumer's polls brought changed."""
    return swap(
        lambda event: isinstance(event, Polled) and event.by == by,
        lambda event: replace(event, records=tuple(change(event.records))),  # type: ignore[arg-type,union-attr]
    )


def ended(value: str, **fields: object) -> list[Event]:
    by, _, number = value.partition("-")
    return swap(
        lambda event: isinstance(event, Ended) and (event.by, event.number) == (by, int(number)),
        lambda event: replace(event, **fields),  # type: ignore[arg-type]
    )


def on_disk(broker: int, change: Callable[[list[Batch]], list[Batch]]) -> list[Event]:
    return swap(
        lambda event: isinstance(event, Replica) and event.broker == broker,
        lambda event: replace(event, batches=tuple(change(list(event.batches)))),  # type: ignore[arg-type,union-attr]
    )


def test_a_clean_history_is_clean_and_counted() -> None:
    verdict = check(clean())
    assert verdict.anomalies == ()
    assert verdict.is_clean
    assert (verdict.acked, verdict.failed, verdict.unknown) == (6, 1, 1)
    assert verdict.acked_during_faults == 1
    assert verdict.longest_without_ack_s == pytest.approx(8.4 - 4.2)


def unread(value: str) -> list[Event]:
    """The clean history in which no consumer ever got the value."""
    return swap(
        lambda event: isinstance(event, Polled),
        lambda event: replace(event, records=tuple(one for one in event.records if one[1] != value)),  # type: ignore[arg-type,union-attr]
    )


def out_of_order() -> list[Event]:
    """The clean history with two messages of a producer in each other's places."""
    events = clean()
    flipped, names = {1: 210, 2: 70}, {"p1-1": "p1-2", "p1-2": "p1-1"}
    for at, event in enumerate(events):
        if isinstance(event, Ended) and event.by == "p1" and event.number in flipped:
            events[at] = replace(event, offset=flipped[event.number])
        elif isinstance(event, Polled):
            events[at] = replace(event, records=tuple((o, names.get(v, v)) for o, v in event.records))
    return events


def unreadable(broker: int) -> list[Event]:
    return swap(
        lambda event: isinstance(event, Replica) and event.broker == broker,
        lambda event: replace(event, unreadable="no batch at 70"),  # type: ignore[arg-type]
    )


PLANTED: dict[str, tuple[list[Event], set[str]]] = {
    "two values at one offset": (
        polled("c2", lambda log: [(o, "p1-3" if o == 70 else v) for o, v in log]),
        {"inconsistent-offset", "duplicate"},
    ),
    "two sends acknowledged at one offset": (
        ended("p2-0", offset=70),
        {"inconsistent-offset", "duplicate"},
    ),
    "one value at two offsets": (polled("c2", lambda log: [*log, (490, "p1-1")]), {"duplicate", "position-past-end"}),
    "an acknowledged value that is elsewhere": (ended("p1-2", offset=211), {"duplicate", "int-poll-skip"}),
    # The consumers passed over it as well: it is known from its acknowledgement.
    "a lost write": (unread("p2-0"), {"lost-write", "poll-skip", "int-poll-skip"}),
    "unseen at the end": (unread("p1-4"), {"unseen"}),
    "a failed send that is read": (ended("p1-3", outcome="fail"), {"aborted-read"}),
    "a value from nowhere": (polled("c2", lambda log: [*log, (421, "p9-9")]), {"phantom", "position-past-end"}),
    "a value of another partition": ([*clean(), Polled(9.6, "c3", 1, ((0, "p1-1"),))], {"duplicate"}),
    "a poll that skips": (polled("c1", lambda log: [one for one in log if one[0] != 210]), {"poll-skip"}),
    "a poll that skips inside": (polled("c1", lambda log: [one for one in log if one[0] != 70]), {"int-poll-skip"}),
    "a consumer that starts too late": (polled("c1", lambda log: [one for one in log if one[0] != 0]), {"poll-skip"}),
    "a poll that goes back": ([*clean(), Polled(9.6, "c1", 0, ((420, "p1-4"),))], {"nonmonotonic-poll"}),
    "a poll that goes back inside": (
        polled("c1", lambda log: [*log[:2], log[0], *log[1:]]),
        {"int-nonmonotonic-poll"},
    ),
    "a consumer that begins anew may go back": (
        [*clean(), Assigned(9.5, "c1", 0, 420), Polled(9.6, "c1", 0, ((420, "p1-4"),))],
        set(),
    ),
    "sends of one producer out of order": (out_of_order(), {"nonmonotonic-send"}),
    "an acknowledgement without an offset is one": (ended("p2-1", offset=-1), set()),
    "a high watermark that goes back": ([*clean(), Shown(9.6, "c1", 0, 420)], {"watermark-back"}),
    "another consumer may be shown less": ([*clean(), Shown(9.6, "c2", 0, 71)], set()),
    "an end before what was acknowledged and read": (
        swap(lambda event: isinstance(event, End), lambda event: replace(event, offset=351)),  # type: ignore[arg-type]
        {"position-past-end"},
    ),
    "a batch that is not at its base offset": (
        on_disk(2, lambda batches: [*batches[:-1], batches[-1]._replace(base_offset=421)]),
        {"misplaced-batch", "replicas-differ", "not-on-disk"},
    ),
    "a batch that fails its CRC": (
        on_disk(3, lambda batches: [batches[0]._replace(valid=False), *batches[1:]]),
        {"corrupt-batch", "replicas-differ"},
    ),
    "files that cannot be read through": (unreadable(1), {"corrupt-batch"}),
    "an epoch that goes back": (
        on_disk(1, lambda batches: [*batches[:-1], batches[-1]._replace(epoch=0)]),
        {"epoch-back", "replicas-differ"},
    ),
    "replicas that differ in a byte": (
        on_disk(2, lambda batches: [batches[0]._replace(digest="x"), *batches[1:]]),
        {"replicas-differ"},
    ),
    "a replica that lacks the end": (on_disk(2, lambda batches: batches[:-1]), {"replicas-differ", "not-on-disk"}),
    "replicas may differ above the high watermark": (
        on_disk(2, lambda batches: [*batches, Batch(490, 490, 70, 2, True, "uncommitted")]),
        set(),
    ),
}


@each(("events", "found"), PLANTED.values(), ids=PLANTED)
def test_what_is_planted_is_found_and_nothing_else(events: list[Event], found: set[str]) -> None:
    assert set(check(events).kinds) == found


def test_a_lost_write_is_told_with_the_replicas_that_have_it() -> None:
    assert "[1, 2, 3]" in check(unread("p2-0")).summary()
