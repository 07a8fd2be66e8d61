"""docs/internals/disk.md against what brokers write, and against what the code unpacks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import klog
from klog.record.batch import HEADER_BYTES
from tests.broker_fixture import ROOT, RunningBroker

PAGE = (ROOT / "docs" / "internals" / "disk.md").read_text()
TREE = PAGE.split("```")[1]
FILES = [line.split()[0] for line in TREE.splitlines()[2:]]
NAMES = {re.sub(r"\d{20}", r"\\d{20}", re.escape(name)) for name in FILES if not name.endswith("/")}


def test_each_file_that_a_broker_writes_is_on_the_page(make_broker: Callable[..., RunningBroker]) -> None:
    broker = make_broker().start()
    with klog.Producer(zookeeper=broker.zookeeper) as producer:
        producer.send("clicks", b"one")
    assert broker.stop() == 0
    dir_ = broker.folder / "data"
    found = [path for path in dir_.rglob("*") if path.is_file()]
    assert len(found) > 8
    assert not [path for path in found if not any(re.fullmatch(name, path.name) for name in NAMES)]

    named = set(re.findall(r"^\| `([a-z.]+)` \|", PAGE, flags=re.M))
    assert {line.partition("=")[0] for line in (dir_ / "meta.properties").read_text().splitlines()} == named

    copied = json.loads((dir_ / "registry-checkpoint").read_text())
    shown = json.loads(PAGE.split("```json")[1].split("```")[0])
    assert copied.keys() == shown.keys()
    assert copied["topics"][0].keys() == shown["topics"][0].keys()
    assert copied["topics"][0]["partitions"]["0"].keys() == shown["topics"][0]["partitions"]["0"].keys()

    (line, *_) = (dir_ / "log-summary-checkpoint").read_text().splitlines()[2:]
    segments, epochs, producers = json.loads(line.split(" ", 3)[3])
    assert len(segments[0]) == len(listed("segment"))
    assert len(epochs[0]) == len(listed("epoch"))
    if producers:
        assert len(producers[0]) == len(listed("producer"))


def listed(what: str) -> list[str]:
    found = re.search(rf"^- {what}: `\[(.*?)\]`", PAGE, flags=re.M | re.S)
    assert found is not None
    return found[1].split(", ")


def test_the_fields_of_a_batch_follow_one_another() -> None:
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \| ?([a-z0-9]*) \|", PAGE, flags=re.M)
    sizes = {"int64": 8, "int32": 4, "uint32": 4, "int16": 2, "int8": 1}
    position = 0
    for at, _, kind in rows:
        assert int(at) == position
        position += sizes.get(kind, 0)
    assert (position, rows[-1][1]) == (HEADER_BYTES, "records")
