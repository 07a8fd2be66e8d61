"""The pieces of `scripts/figure3` that need no cluster: delays, the verdict, the picture, the page's server."""

from __future__ import annotations

import math
import urllib.error
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.figure3 import gauges
from bench.figure3.commands import SMALL
from bench.figure3.delays import COARSE_MS, FINE_MS, Delays
from bench.figure3.facts import Box, Facts, Flow
from bench.figure3.page import render
from bench.figure3.part import Notes, Part
from bench.figure3.picture import Place
from bench.figure3.proof import TierRow, judge
from bench.figure3.question import table_of
from bench.figure3.results import Run, markdown
from bench.figure3.server import serve_page
from bench.figure3.watch import WINDOW_MS
from klog.net.http_server import HttpServer
from klog.tools.audit.ledger import Produced
from klog.tools.audit.tally import Origin, Tally, Window
from tests.browser import NEEDED, check_fits

HOSTILE = "<script>alert(1)</script>&\x1b[31m\"'"


# --- Delays -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-50, 3 * FINE_MS), min_size=1))
def test_delays_are_those_of_the_nearest_rank(delays_ms: list[int]) -> None:
    kept = Delays()
    kept.add(delays_ms)
    ordered = sorted(max(0, one) for one in delays_ms)
    found = kept.all()
    assert found is not None and found.messages == len(delays_ms)
    for share, value in ((0.5, found.p50_ms), (0.99, found.p99_ms), (1, found.worst_ms)):
        exact = ordered[max(0, math.ceil(len(ordered) * share) - 1)]
        assert exact <= value <= exact + (0 if exact < FINE_MS else COARSE_MS)


def test_recent_delays_are_taken_once_and_stay_in_all() -> None:
    kept = Delays()
    assert kept.all() is None and kept.take_recent() is None
    kept.add([1, 2])
    assert kept.take_recent() == (2, 1, 2, 2)
    assert kept.take_recent() is None
    assert kept.all() == (2, 1, 2, 2)


# --- The verdict ------------------------------------------------------------------------------------------------------

A, B = Origin("front-a", "aaaa"), Origin("front-b", "bbbb")
FIRST, SECOND = Window("pages", 0), Window("pages", WINDOW_MS)


def tally(*messages: tuple[Origin, int, int]) -> Tally:
    """Of (origin, time in ms, number)."""
    found = Tally(WINDOW_MS)
    for origin, time_ms, number in messages:
        stamp = f"{time_ms} {number} {origin.producer} {origin.host}".encode()
        found.add("pages", time_ms, [("klog.audit", stamp)])
    return found


SENT = {FIRST: {A: Produced(2), B: Produced(1)}, SECOND: {A: Produced(1)}}
PUBLISHERS = {A: 1, B: 1}
WHOLE = [(A, 5, 0), (A, 6, 1), (B, 7, 0), (A, WINDOW_MS, 2)]


def test_a_tier_with_each_message_once_is_ok() -> None:
    row = judge("live", SENT, tally(*WHOLE), PUBLISHERS, None)
    assert (row.sent, row.messages, row.missing, row.extra, row.state) == (4, 4, 0, 0, "ok")


def test_a_lost_and_a_doubled_message_of_one_window_do_not_hide_each_other() -> None:
    row = judge("live", SENT, tally((A, 5, 0), (A, 5, 0), (B, 7, 0), (A, WINDOW_MS, 2)), PUBLISHERS, None)
    assert (row.messages, row.missing, row.extra, row.state) == (4, 1, 1, "gap")


def test_a_window_that_is_gone_is_missing() -> None:
    row = judge("table", SENT, tally(*WHOLE[:3]), PUBLISHERS, None)
    assert (row.missing, row.extra, row.state) == (1, 0, "gap")


def test_numbers_with_a_hole_are_a_gap_although_the_count_is_right() -> None:
    row = judge("live", SENT, tally(*WHOLE[:3], (A, WINDOW_MS, 3)), PUBLISHERS, None)
    assert (row.missing, row.extra, row.state) == (0, 0, "gap")
    assert row.note is not None and "front-a" in row.note


def test_a_front_end_without_its_last_word_is_unfinished() -> None:
    sent = {FIRST: {A: Produced(1, is_final=False)}}
    assert judge("live", sent, tally((A, 5, 0)), PUBLISHERS, None).state == "unfinished"


def test_nothing_published_is_not_ok() -> None:
    assert judge("live", {}, Tally(WINDOW_MS), {}, None).state == "unfinished"


def test_another_ones_message_is_extra() -> None:
    row = judge("live", {FIRST: {A: Produced(1)}}, tally((A, 5, 0), (B, 5, 0)), PUBLISHERS, None)
    assert (row.missing, row.extra, row.state) == (0, 1, "gap")


# --- The page ---------------------------------------------------------------------------------------------------------


def facts(title: str = "live cluster", trouble: tuple[str, ...] = ()) -> Facts:
    boxes = [Box("a", "front ends", ("4 by haproxy",)), Box("b", title, ("3 brokers",), trouble)]
    flows = [Flow("a", "b", "klog produce", 10, 12.5, 7, 150), Flow("a", "elsewhere", "klog mirror", 1, 0.0)]
    return Facts(1_700_000_000_000, 61.0, boxes, flows, [("live", 10, None)], [["page"], [title]], title)


PLACES = {"a": Place(0, 0), "b": Place(1, 0.5)}


def pictures(page: str) -> list[ET.Element]:
    return [ET.fromstring(page[page.index("<svg") : page.index("</svg>") + len("</svg>")])]


def test_the_picture_has_boxes_arrows_and_their_figures() -> None:
    (picture,) = pictures(render(facts(), PLACES, is_live=False))
    assert len(list(picture.iter("rect"))) == 2
    left, top, width, _ = map(float, picture.attrib["viewBox"].split())
    assert left < 0 and top < 0 and width + left > 1000  # half of a border is outside of its box
    assert len(list(picture.iter("line"))) == 1  # the other arrow leads to no box
    texts = [one.text for one in picture.iter("text")]
    assert {"front ends", "live cluster", "12.5/s", "150 ms", "lag 7"} <= set(texts)


def test_a_part_that_was_stopped_is_not_broken(tmp_path: Path) -> None:
    part = Part("loader", ["--version"], tmp_path, Notes(tmp_path / "parts.json"), again=False).start()
    try:
        assert part.wait(20.0)
        assert gauges._troubles(part) == ["loader is down"]
    finally:
        part.stop(5.0)
    assert gauges._troubles(part) == []


def test_hostile_names_are_text() -> None:
    page = render(facts(HOSTILE, (HOSTILE,)), PLACES, is_live=True)
    assert "<script" not in page and "\x1b" not in page
    (picture,) = pictures(page)
    assert not list(picture.iter("script"))
    assert any((one.text or "").startswith("<script>") for one in picture.iter("text"))


@NEEDED
def test_the_page_fits_a_phone_and_a_desktop(tmp_path: Path) -> None:
    check_fits(render(facts("x" * 200, (HOSTILE * 5,)), PLACES, is_live=False), tmp_path)


def test_what_is_broken_is_named_and_only_a_served_page_loads_itself_again() -> None:
    page = render(facts(trouble=("broker 2 is down",)), PLACES, is_live=True)
    assert "live cluster: broker 2 is down" in page and 'http-equiv="refresh"' in page
    assert "http-equiv" not in render(facts(), PLACES, is_live=False)


def test_an_answer_is_rows_below_the_names_of_its_columns() -> None:
    assert table_of(b'{"page":"/","views":3}\n{"page":null,"views":1}\n') == [
        ["page", "views"],
        ["/", "3"],
        ["None", "1"],
    ]
    assert table_of(b"") == [] == table_of(b"cut off {")


def test_results_are_a_table_of_markdown() -> None:
    row = TierRow("live", 1234, 1234, 0, 0, 10, 20, None, "ok")
    run = Run(SMALL, 1.5, 7, True, 11, "haproxy", 0.8, [row], ["front-a has ended"])
    text = markdown(run, 1_700_000_000_000)
    assert "| live | 1,234 | 1,234 | 0 | 0 | 10 | 20 | – | ok |" in text
    assert "seed 7, 11 faults" in text and "front-a has ended" in text and "after 0.8 s" in text


# --- The server -------------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[HttpServer]:
    served = serve_page(lambda: "<p>page</p>", 0)
    yield served
    served.close()


def test_it_serves_one_page_on_this_machine(server: HttpServer) -> None:
    with urllib.request.urlopen(f"http://{server.address}/", timeout=10) as answer:
        assert answer.read() == b"<p>page</p>"
        assert answer.headers["Content-Type"].startswith("text/html")
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"http://{server.address}/etc/passwd", timeout=10)
    error.value.close()
    assert error.value.code == 404
    assert server.address.startswith("127.0.0.1:")
