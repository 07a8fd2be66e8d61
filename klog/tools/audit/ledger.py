"""The audit topic, read whole: what producers say they sent, and what was counted of each tier.

Beside the publications of producers (`klog.client.audit`) it holds what `klog audit run` has counted, as messages with
``<tier>/<topic>`` as their key::

    {"version": 1, "kind": "counted", "tier": "live", "cluster": "...", "run": "5d1f...", "part": 0, "parts": 1,
     "counted_ms": ..., "window_ms": 600000, "topic": "t", "anew": false, "partitions": {"0": [0, 8120]},
     "windows": [{"start_ms": ..., "host": "web-1", "producer": "9f2c41d07ab3", "messages": 812,
                  "distinct": 812}]}

A run counts the offsets that it names and nothing else, and goes on where the one before it ended. ``distinct`` counts
a message once of which the run has read copies. Of two that counted
the same offsets the second is skipped; one that counted ``anew`` replaces all before it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from klog.client.audit import PRODUCED, TOPIC, VERSION, Count, Publication
from klog.client.cluster import Cluster
from klog.client.producer_settings import AUDIT_WINDOW_MS
from klog.client.resolve import bounds
from klog.errors import PeerError, UnknownTopicOrPartition
from klog.tools.audit.tally import UNSTAMPED, Origin, Tally, Window
from klog.tools.reader import read_ranges

COUNTED: Final = "counted"

WINDOW_MS_MAX: Final = 24 * 3_600_000


@dataclass(slots=True)
class Produced:
    """What one producer says of one window: ``messages`` acknowledged, ``unknown`` may be in the log."""

    messages: int = 0
    unknown: int = 0
    is_final: bool = True


@dataclass(slots=True)
class Counted:
    """What runs have counted of a tier's topic, and up to where."""

    tally: Tally
    ends: dict[int, int] = field(default_factory=dict)
    """Partition -> the offset where the next run goes on."""
    counted_ms: int = 0
    """When the last run looked where the ends are: what was appended before is counted."""


@dataclass(slots=True)
class Ledger:
    window_ms: int
    """The shortest windows that those of all producers and runs fit in."""
    produced: dict[Window, dict[Origin, Produced]] = field(default_factory=dict)
    counted: dict[tuple[str, str], Counted] = field(default_factory=dict)
    """By tier and topic."""
    publishes: dict[Origin, int] = field(default_factory=dict)
    """When each producer has published last, by its clock."""
    strange: int = 0
    """Messages of the topic that could not be read."""

    def windows(self) -> set[Window]:
        """Those that producers publish, and those in which stamps were counted."""
        stamped = {window for one in self.counted.values() for window, origin, _ in one.tally if origin != UNSTAMPED}
        return self.produced.keys() | stamped


async def read_ledger(cluster: Cluster, audit_topic: str = TOPIC, *, window_ms: int | None = None) -> Ledger:
    """What the topic says; empty where it is not there. ``window_ms``: windows of that length, if producers' fit in."""
    try:
        node = await cluster.topic(audit_topic)
    except UnknownTopicOrPartition:
        return Ledger(window_ms or AUDIT_WINDOW_MS)
    values: list[bytes] = []
    await read_ranges(
        cluster, await bounds(cluster, node.names()), lambda message: values.append(message.value() or b"")
    )
    return build_ledger(values, window_ms)


def build_ledger(values: Iterable[bytes], window_ms: int | None = None) -> Ledger:
    """From the messages of the audit topic in the order of its log."""
    publications: list[Publication] = []
    counted: list[dict[str, Any]] = []
    strange = 0
    for value in values:
        try:
            read = json.loads(value)
            if read["version"] != VERSION:
                strange += 1
            elif read["kind"] == PRODUCED:
                publications.append(Publication.from_json(read))
            elif read["kind"] == COUNTED:
                int(read["window_ms"])
                counted.append(read)
            else:
                strange += 1
        except (ValueError, KeyError, TypeError, PeerError, RecursionError, OverflowError):
            strange += 1
    lengths = {one.window_ms for one in publications} | {int(one["window_ms"]) for one in counted}
    lengths = {one for one in lengths if 0 < one <= WINDOW_MS_MAX}
    ledger = Ledger(_window_ms(lengths, window_ms), strange=strange)
    _enter_produced(ledger, publications)
    for run in _whole_runs(counted):
        try:
            _enter_counted(ledger, run)
        except (ValueError, KeyError, TypeError, PeerError, RecursionError, OverflowError):
            ledger.strange += 1
    return ledger


def _window_ms(lengths: set[int], wanted: int | None) -> int:
    """The shortest length that all of these divide, and that is at least as long as asked for."""
    least = math.lcm(*lengths) if lengths else wanted or AUDIT_WINDOW_MS
    if least > WINDOW_MS_MAX:
        least = WINDOW_MS_MAX
    return least if wanted is None else math.lcm(least, wanted) if wanted % least else wanted


def _enter_produced(ledger: Ledger, publications: list[Publication]) -> None:
    """Of each producer, topic, window and part the latest publication; parts and smaller windows add up."""
    said: dict[tuple[Origin, str, int, int], tuple[int, Count]] = {}
    for one in publications:
        origin = Origin(one.host, one.producer)
        ledger.publishes[origin] = max(one.sent_ms, ledger.publishes.get(origin, 0))
        for count in one.counts:
            key = (origin, count.topic, count.start_ms, count.part)
            if key not in said or said[key][0] < one.sequence:
                said[key] = one.sequence, count
    for (origin, topic, start_ms, _), (_, count) in said.items():
        window = Window(topic, start_ms - start_ms % ledger.window_ms)
        produced = ledger.produced.setdefault(window, {}).setdefault(origin, Produced())
        produced.messages += count.messages
        produced.unknown += count.unknown
        produced.is_final &= count.final


def _whole_runs(messages: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The parts of each run's topic together, where all are there, in the order of their last part."""
    parts: dict[tuple[Any, Any, Any], dict[int, dict[str, Any]]] = {}
    whole = []
    for one in messages:
        key = one.get("tier"), one.get("topic"), one.get("run")
        known = parts.setdefault(key, {})
        is_new = one.get("part") not in known
        known[one.get("part")] = one  # type: ignore[index]
        if is_new and len(known) == one.get("parts"):
            whole.append(list(known.values()))
    return whole


def _enter_counted(ledger: Ledger, parts: list[dict[str, Any]]) -> None:
    head = parts[0]
    tier, topic, window_ms = str(head["tier"]), str(head["topic"]), int(head["window_ms"])
    spans = {int(one): (int(begin), int(end)) for one, (begin, end) in head["partitions"].items()}
    known = ledger.counted.get((tier, topic))
    if known is None or head["anew"]:
        known = ledger.counted[tier, topic] = Counted(Tally(ledger.window_ms))
    elif any(known.ends.get(one, begin) != begin for one, (begin, _) in spans.items()):
        return  # another run has counted these offsets
    tally = Tally(window_ms)
    for part in parts:
        tally.add_json(topic, part["windows"])
    known.tally.update(tally)
    known.ends.update({one: end for one, (_, end) in spans.items()})
    known.counted_ms = max(known.counted_ms, int(head["counted_ms"]))
