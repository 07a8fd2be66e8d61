"""What is told by one broker; how much is kept; which kinds there are."""

from __future__ import annotations

import ast
import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode

from klog.event_kinds import EVENT_KINDS
from klog.record.records import Record
from klog.server import events
from klog.server.events import ITEMS_MAX, KEPT_MAX, TOPIC, Events, EventsTopic
from klog.server.runtime import Identity, Runtime
from tests.broker_fixture import RunningBroker
from tests.rows import each
from tests.server.asking import create, produce, told_of, values

ROOT = Path(__file__).resolve().parent.parent.parent


def make(*, to_topic: bool = True) -> Events:
    """Events of broker 7 that are not started: nothing is sent."""

    async def made() -> Events:
        return Events(Identity(7), to_topic=to_topic)

    return asyncio.run(made())


def test_what_is_told_is_written_with_who_and_when() -> None:
    one = make()
    one.record("leader-elected", {"topic": "t", "partition": 0, "leader": 2})
    (entry,) = one._kept
    assert list(entry) == ["ts", "broker", "kind", "topic", "partition", "leader"]
    assert (entry["broker"], entry["kind"], entry["leader"]) == (7, "leader-elected", 2)
    assert entry["ts"].endswith("Z")
    assert json.loads(json.dumps(entry)) == entry


def test_of_too_much_the_oldest_goes_and_is_counted() -> None:
    one = make()
    for number in range(KEPT_MAX + 5):
        one.record("topic-created", {"topic": f"t{number}"})
    assert one.dropped == 5
    assert one.told["topic-created"] == KEPT_MAX + 5


def test_what_nobody_asked_for_is_not_kept() -> None:
    one = make(to_topic=False)
    one.record("topic-created", {"topic": "t"})
    assert not one._kept
    assert one.told["topic-created"] == 1, "the metric counts it"


def test_what_a_client_has_chosen_is_cut_short() -> None:
    one = make()
    members = ["m" * 1_000] * 1_000
    one.record(
        "rebalance", {"group": "g" * 1000, "generation": 1, "members": members, "settings": {"a": {"b": "c" * 1000}}}
    )
    (entry,) = one._kept
    assert len(entry["members"]) == ITEMS_MAX
    assert {len(text) for text in (*entry["members"], entry["group"], entry["settings"]["a"]["b"])} == {303}


class Topic:
    """The topic in memory, with a limit for the bytes of a batch."""

    is_connected = False
    is_there = True

    def __init__(self, bytes_max: int, wanted: int) -> None:
        self.batches: list[list[Record]] = []
        self.all_there = asyncio.Event()
        self.may_create: bool | None = None
        self._bytes_max = bytes_max
        self._wanted = wanted

    async def keep(self, *, may_create: bool) -> None:
        self.may_create = may_create

    async def produce(self, records: list[Record]) -> bool:
        if sum(len(record.value or b"") for record in records) > self._bytes_max:
            return False
        self.batches.append(records)
        if sum(map(len, self.batches)) == self._wanted:
            self.all_there.set()
        return True

    async def close(self) -> None:
        pass


@each("bytes_max", [events.BATCH_BYTES_MAX, 50_000])
async def test_long_events_are_not_lost_with_their_batch(bytes_max: int) -> None:
    one = Events(Identity(7), to_topic=True)
    for number in range(100):
        one.record("settings-changed", {"topic": f"t{number}", "settings": {f"s{n}": "x" * 300 for n in range(50)}})
        one.record("act", {"act": str(number)})
    topic = Topic(bytes_max, 200)
    runtime: Any = SimpleNamespace(spawn=asyncio.ensure_future)
    one.start(runtime, cast(Any, topic))
    async with asyncio.timeout(20):
        await topic.all_there.wait()
    await one.close()
    values = [json.loads(record.value or b"") for batch in topic.batches for record in batch]
    assert [value["act"] for value in values if "act" in value] == [str(number) for number in range(100)]
    assert one.dropped == 0
    assert topic.may_create


async def test_a_controller_without_events_of_its_own_keeps_the_topic_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It makes no topic, and adds replicas to one that is there."""
    monkeypatch.setattr(events, "LOOK_AGAIN_S", 0.001)
    monkeypatch.setattr(events, "SETTLE_S", 0.0)
    image: Any = SimpleNamespace(brokers={1: None}, topics={})
    asked: asyncio.Queue[Any] = asyncio.Queue()

    async def answer(request: Any) -> Any:
        asked.put_nowait(request)
        return SimpleNamespace(error_code=ErrorCode.none, responses=())

    nobody: Any = None
    topic = EventsTopic(nobody, image, nobody, nobody, lambda: True, answer)
    keeping = asyncio.ensure_future(topic.keep(may_create=False))
    await asyncio.sleep(0.05)
    assert asked.empty(), "no topic was wanted"
    image.topics[TOPIC] = SimpleNamespace(partitions={0: SimpleNamespace(replicas=(1,))})
    image.brokers[2] = None
    async with asyncio.timeout(20):
        request = await asked.get()
    keeping.cancel()
    ((partition,),) = [one.partitions for one in request.topics]
    assert partition.replicas == (1, 2)


def test_a_kind_is_no_fact() -> None:
    """A fact may have the name of anything but the kind's own argument."""
    told: list[tuple[str, Any]] = []
    runtime: Any = SimpleNamespace(tell_facts=lambda *event: told.append(event))
    Runtime.tell(runtime, "broker-up", self=1, kind="x")
    assert told == [("broker-up", {"self": 1, "kind": "x"})]


def test_closing_what_was_never_started() -> None:
    asyncio.run(make().close())


def told_in_the_source() -> Iterator[tuple[str, Path]]:
    """Every kind that a call names: ``tell("kind", ...)``, ``tell("a" if x else "b", ...)``, ``tell_facts, "kind"``."""
    for path in (ROOT / "klog" / "server").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            asked = node.args
            if isinstance(node.func, ast.Attribute) and node.func.attr == "tell" and asked:
                first = asked[0]
            elif asked and isinstance(asked[0], ast.Attribute) and asked[0].attr == "tell_facts":
                first = asked[1]
            else:
                continue
            for one in ast.walk(first):
                if isinstance(one, ast.Constant) and isinstance(one.value, str):
                    yield one.value, path


def test_every_kind_that_is_told_is_explained() -> None:
    found = list(told_in_the_source())
    assert len(found) > 10
    for kind, path in found:
        assert kind in EVENT_KINDS, f"{path} tells {kind!r}"


def test_damage_that_recovery_finds_is_told(make_broker: Callable[..., RunningBroker]) -> None:
    broker = make_broker().start()
    create(broker.bootstrap, "damaged")
    first, second, _ = produce(broker.bootstrap, "damaged", [values(3), values(3), values(3)])
    broker.kill()
    folder = broker.folder / "data"
    for checkpoint in folder.glob("*checkpoint"):
        checkpoint.unlink()
    segment = folder / "damaged-0" / f"{0:020d}.log"
    data = bytearray(segment.read_bytes())
    data[second + 80] ^= 1
    segment.write_bytes(data)
    broker.start()
    (found,) = told_of(broker.bootstrap, "damage-found")
    assert (found["topic"], found["partition"], found["first_address"], found["found_by"]) == (
        "damaged",
        0,
        second,
        "recovery",
    )
    assert found["end_address"] > second > first


async def test_what_a_wrong_clock_has_stamped_is_of_now_at_the_latest() -> None:
    """A leader refuses messages from ahead of its clock: the events behind one would wait for ever."""
    day_ms = 86_400_000
    now_ms = time.time_ns() // 1_000_000
    identity = Identity(7)
    one, topic = Events(identity, to_topic=True), Topic(events.BATCH_BYTES_MAX, 2)
    identity.clock_ahead_ms = -day_ms  # it stamps what is of a day ahead
    one.record("topic-created", {"topic": "before it was known"})
    identity.clock_ahead_ms = 0
    one.record("clock-skew", {})
    one.start(cast(Any, SimpleNamespace(spawn=asyncio.ensure_future)), cast(Any, topic))
    async with asyncio.timeout(20):
        await topic.all_there.wait()
    await one.close()
    assert [record.timestamp_ms - now_ms < 60_000 for batch in topic.batches for record in batch] == [True, True]


@each("kind", sorted(EVENT_KINDS))
def test_an_event_makes_a_record(kind: str) -> None:
    """Each as the topic's readers get it: the kind as the key, JSON as the value, the time of telling."""
    event = {"ts": "2026-02-01T10:00:00.250Z", "broker": 1, "kind": kind, "ids": (1, 2), "odd": Path("/x"), "ü": "é"}
    record = events._record(event)
    assert record.key == kind.encode()
    assert record.timestamp_ms == 1769940000250
    assert record.value is not None
    assert json.loads(record.value) == {**event, "ids": [1, 2], "odd": "/x"}


def test_the_topic_is_one_that_may_be_made() -> None:
    from klog.names import check_topic_name

    check_topic_name(TOPIC)
