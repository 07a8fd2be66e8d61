"""Goal: the screen of `klog top` says what is so, in its cells, whatever names a cluster has.

Method: facts and keys in, lines out; no terminal and no cluster.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.render.fitting import cells
from klog.tools.top.facts import BrokerLine, GroupLine, PartitionLine, TopicLine, TopTick
from klog.tools.top.gathering import PAUSE_MAX_S, PAUSES, TREND_S, Part, Rates, Trend
from klog.tools.top.screen import HEIGHT_MIN, WIDTH_MIN, Screen
from tests.rows import each

EVIL = "a\x1b]0;owned\x07b\x9b2Jc\u202e\n\t名前<b>"


def tick(name: str = "orders", groups: int = 3, trouble: str | None = None) -> TopTick:
    return TopTick(
        datetime(2026, 2, 1, 10, tzinfo=UTC),
        "127.0.0.1:9092",
        "BROKEN: 1 of 12 partitions without a leader",
        1,
        12,
        1,
        1,
        (BrokerLine(1, f"{name}:9092", "controller", 1200.0, 5e6, 7e6, 4, 12, 0, 5 * 10**9, 10**10, 5 * 10**7, 0.25),
         BrokerLine(2, None, "dead")),
        tuple(TopicLine(f"{name}{number}", 6, number, 0, 1.0, 2.0, None) for number in range(4)),
        (PartitionLine(name, 3, None, (1, 2), (2,), "no leader"),),
        tuple(GroupLine(f"{name}-{number}", 10 * number, 5, 900, -5.0, 6) for number in range(groups)),
        (),
        trouble,
    )  # fmt: skip


def screen_of(**options: Any) -> Screen:
    screen = Screen("prod")
    screen.take(tick(**options), [{"kind": "broker-down", "id": 2, "ts": "2026-02-01T09:59:00Z", "reason": EVIL}])
    return screen


def text(screen: Screen, width: int = 80, height: int = 24) -> str:
    lines = screen.lines(width, height)
    assert len(lines) <= height
    shown = ["".join(part for _, part in line) for line in lines]
    assert all(cells(one) <= width for one in shown), shown
    assert all(one.isprintable() for one in shown), shown
    return "\n".join(shown)


def test_everything_is_on_80_by_24() -> None:
    shown = text(screen_of())
    for wanted in (
        "1/2 brokers, controller 1",
        "BROKEN: 1 of 12 partitions",
        "1 orders",
        "dead",
        "1.2k",
        "no leader",
        "orders-3",
        "broker-down",
    ):
        assert wanted in shown, shown
    assert "EMPTY-IN" in shown and "4s" in shown  # a lag of 20 that shrinks by 5 a second
    assert "IN TROUBLE" in shown and "q leave" in shown


def test_what_is_not_known_is_not_none() -> None:
    screen = Screen("prod")
    screen.take(replace(tick(), groups=None, no_groups="NO-SESSION-7"), [], "NO-TOPIC-7")
    shown = text(screen)
    assert "groups unknown: NO-SESSION-7" in shown and "events unknown: NO-TOPIC-7" in shown


def test_before_the_first_answer_and_without_one() -> None:
    assert "asking" in text(Screen("prod"))
    shown = text(screen_of(trouble="CONNECT-7"))
    assert "CONNECT-7" in shown and "of earlier" in shown
    assert f"{WIDTH_MIN}x{HEIGHT_MIN}" in text(screen_of(), 30, 5)


@given(st.text(max_size=40) | st.just(EVIL), st.integers(WIDTH_MIN, 200), st.integers(HEIGHT_MIN, 60))
def test_names_are_text_and_lines_fit(name: str, width: int, height: int) -> None:
    screen = screen_of(name=name, groups=40)
    for key in ("", "tab", "z", "end", "enter", "escape", "s", "s", "z"):
        screen.press(key)
        text(screen, width, height)


def test_keys() -> None:
    screen = screen_of(groups=50)
    for _ in range(3):
        screen.press("tab")
    assert screen.panes[screen.focus].name == "groups"
    screen.press("down")
    assert screen.panes[screen.focus].row.group == "orders-1"
    assert screen.press("enter") == "load"
    assert screen.deeper is not None and screen.deeper.of[1].group == "orders-1"
    screen.deeper.lines = [f"line {number}" for number in range(100)]
    assert "line 0" in text(screen)
    screen.press("end")
    assert "line 99" in text(screen)
    assert screen.press("w") == "load" and screen.deeper.of == ("why", ("group", "orders-1"))
    screen.press("escape")
    assert screen.deeper is None
    for key in ("/", "-", "4", "9", "q", "backspace", "enter"):
        assert screen.press(key) is None
    assert [one.group for one in screen.panes[3].rows] == ["orders-49"]
    assert "only '-49'" in text(screen) and " /-49 " in text(screen)
    assert len(screen.panes[1].rows) == 4, "the other panes keep their rows"
    screen.press("tab")
    for key in ("/", "z", "z", "enter"):
        screen.press(key)
    assert "none of 1 events has 'zz'" in text(screen)
    screen.press("s-tab")
    screen.press("escape")
    assert len(screen.panes[3].rows) == 50
    screen.press("s")
    screen.press("s")  # by lag
    assert screen.panes[3].rows[0].group == "orders-49"
    screen.press("p")
    screen.take(tick(name="other"), [])
    assert "orders" in text(screen) and "held" in text(screen)
    assert screen.press("q") == "quit" == screen.press("f10")


@each(("pane", "words"), [
    (0, ("broker", "1")), (1, ("topic", "orders0")), (2, ("partition", "orders-3")), (3, ("group", "orders-0")),
    (4, ("broker", "2")),
])  # fmt: skip
def test_why_of_each_kind(pane: int, words: tuple[str, ...]) -> None:
    screen = screen_of()
    screen.focus = pane
    assert screen.press("w") == "load" and screen.deeper is not None
    assert screen.deeper.of == ("why", words)


def test_the_chosen_row_stays_chosen_while_rows_move() -> None:
    screen = screen_of()
    screen.focus = 3
    screen.press("end")
    screen.take(tick(groups=2), [])
    assert screen.panes[3].row.group == "orders-0"  # it has gone: the first
    screen.press("down")
    screen.take(tick(groups=9), [])
    assert screen.panes[3].row.group == "orders-1"


def test_rates_and_trends() -> None:
    rates = Rates()
    assert rates.of("a", 100, 0.0) is None
    rates.begin()
    assert rates.of("a", 150, 2.0) == 25
    rates.begin()
    assert rates.of("a", 3, 3.0) is None and rates.of("b", None, 3.0) is None  # a broker that has begun anew
    rates.begin()
    rates.begin()
    assert rates.of("a", 5, 9.0) is None  # not seen for a while
    rates.begin()
    rates.of("broker", 1, 10.0)
    rates.begin()
    assert rates.of("topic", 8, 12.0, beside="broker") == 4  # it had no messages before
    trend = Trend()
    assert trend.per_second is None
    for second in range(int(3 * TREND_S)):
        trend.add(10.0 * second, float(second))
    assert trend.per_second == pytest.approx(10.0)


def test_a_slow_cluster_is_asked_less_often() -> None:
    async def nothing() -> None: ...

    part = Part(nothing, 2.0)
    assert part.is_due(0.0)
    part.took(1.0, 1.0)
    assert not part.is_due(1.5) and part.is_due(1.9)  # the first answer opened connections
    part.took(0.02, 2.0)
    assert not part.is_due(2.0 + PAUSES * 0.02 - 0.2) and part.is_due(2.0 + PAUSES * 0.02)
    part.took(9.0, 20.0)
    part.took(9.0, 30.0)
    assert not part.is_due(35.0) and part.is_due(21.0 + PAUSE_MAX_S)
