"""The screens of `klog status`, as text: ``screens/*.txt`` at 80 and at 120 columns, to be reviewed by their diff.

``python -m tests.words.test_screens --update`` writes them again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from klog.admin.acts import ActRow
from klog.admin.health.group_looks import GroupLook
from klog.admin.health.local_brokers import LocalBroker
from klog.admin.health.rules import judge
from klog.admin.health.screen import screen
from klog.admin.health.snapshot import Snapshot
from klog.coordination.groups import Member
from tests.admin.test_check import NOW_MS, down, gone_zookeeper, kill, read, two_dead, unpreferred, well
from tests.rows import each

SCREENS = Path(__file__).with_name("screens")
WIDTHS = (80, 120)
AGO_MS = NOW_MS - 780_000


def quiet() -> Snapshot:
    snapshot = well()
    snapshot.zookeeper, snapshot.no_groups = "127.0.0.1:2181", None
    return snapshot


def with_group(snapshot: Snapshot) -> Snapshot:
    snapshot.zookeeper, snapshot.no_groups = "127.0.0.1:2181", None
    snapshot.group_looks = [
        GroupLook("billing", (), since_ms=AGO_MS),
        GroupLook("audit", (Member("m", None, None),), since_ms=AGO_MS),
    ]
    snapshot.groups = [replace(read(5, 0, 9, lag=62_300), group="billing", owner=None)]
    at = datetime.fromtimestamp(AGO_MS / 1000, UTC)
    act = ActRow("mwwqwlm16h00", at, "root@host", "klog", "offsets-set", "group billing", "-", "-", None)
    snapshot.acts, snapshot.acts_in_all = [act, replace(act, kind="topic-create", subject="topic " + "t" * 90)], 5
    return snapshot


def broken() -> Snapshot:
    snapshot = with_group(two_dead())
    start = "klog up --detach --dir /srv/a-folder-with-a-long-name/of-a-local-cluster/on-this-machine"
    snapshot.here = {one: LocalBroker(f"h:900{one}", start, Path(f"/srv/broker-{one}.log")) for one in (2, 3)}
    snapshot.located = {2: "h:9002", 3: "h:9003"}
    return snapshot


def all_down() -> Snapshot:
    snapshot = well()
    down(snapshot)
    gone_zookeeper(snapshot)
    snapshot.here = {
        one: LocalBroker(f"h:900{one}", "klog up --detach", Path(f"/srv/broker-{one}.log")) for one in (1, 2, 3)
    }
    return snapshot


def one_dead() -> Snapshot:
    snapshot = quiet()
    kill(snapshot, 3)
    unpreferred(snapshot)
    return snapshot


CASES: dict[str, Callable[[], Snapshot]] = {
    "all-is-well": quiet,
    "two-of-three-dead": broken,
    "one-dead": one_dead,
    "everything-down": all_down,
}


def drawn(make: Callable[[], Snapshot], width: int) -> str:
    snapshot = make()
    findings = judge(snapshot)
    if findings and findings[0].kind == "dead-broker":
        what = findings[0].what
        cause = f"{what} went down at 2023-11-14 22:11:02 (event broker-down: connections are refused)"
        findings[0] = replace(findings[0], cause=cause)
    return "".join(line.text + "\n" for line in screen(snapshot, findings, "local  127.0.0.1:9092-9094", width))


def file_of(name: str, width: int) -> Path:
    return SCREENS / f"{name}-{width}.txt"


@each("name", CASES)
def test_the_screens_are_those_that_were_reviewed(name: str) -> None:
    for width in WIDTHS:
        text = drawn(CASES[name], width)
        assert text == file_of(name, width).read_text(), "review it, then: python -m tests.words.test_screens --update"
        too_long = [line for line in text.splitlines() if len(line) > width and "`" not in line]
        assert too_long == [], "only a command that is pasted may be longer"


def test_each_file_is_of_a_case() -> None:
    assert {one.name for one in SCREENS.iterdir()} == {file_of(name, width).name for name in CASES for width in WIDTHS}


if __name__ == "__main__" and "--update" in sys.argv:
    SCREENS.mkdir(exist_ok=True)
    for known in CASES:
        for columns in WIDTHS:
            file_of(known, columns).write_text(drawn(CASES[known], columns))
