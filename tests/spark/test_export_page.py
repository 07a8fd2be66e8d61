"""The report of an export: one page that is whole, says what is so, and takes nothing from elsewhere."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from klog.export import page
from klog.export.compact import compact
from klog.export.rows import ExportStatus
from klog.render import plots, value_texts
from tests.browser import NEEDED, check_fits
from tests.cli.runner import klog
from tests.spark.handmade import HandmadeExport

HOUR_MS = 3_600_000
NOW_MS = 1_790_000_000_000


def made(root: Path, **options: object) -> str:
    return page.render(page.gather(None, str(root), **options))  # type: ignore[arg-type]


def test_a_page_says_what_is_exported_and_needs_nothing(tmp_path: Path) -> None:
    export = HandmadeExport(tmp_path / "my<root>", "orders", "clicks")
    for number in range(8):
        export.commit(5, at_ms=NOW_MS + number * HOUR_MS, age_ms=2500, gap=20 if number == 3 else 0)
    compact(str(export.path), batches=(0, 4))
    text = made(export.path)
    assert not re.search(r"<script|<link|src=|https?://|url\(|@import", text)
    assert "<my" not in text and "my&lt;root&gt;" in text
    assert ">160<" in text.replace("<p>160</p>", "<p>>160<</p>")
    for words in (
        "orders",
        "clicks",
        "2.5 s",
        "removed before it was exported",
        "5 of them were merged",
        "8 manifests",
    ):
        assert words in text
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ET.fromstring(svg)
    assert text.count("<svg") >= 8
    body = re.sub(r"<meta[^>]*>|<!doctype html>", "", text)
    ET.fromstring(body)  # every element is closed


def test_plots_have_the_page_s_colours_and_a_title_for_each_mark(tmp_path: Path) -> None:
    export = HandmadeExport(tmp_path, "a", "b")
    for number in range(3):
        export.commit(5 + number, at_ms=NOW_MS + number * HOUR_MS, age_ms=2500)
    svg = ET.fromstring(re.findall(r"<svg.*?</svg>", made(tmp_path), re.DOTALL)[0])
    marks = [one for one in svg.iter("g") if one.get("class") == "mark"]
    assert len(marks) == 6
    styles = {path.get("style") or "" for mark in marks for path in mark.iter("path")}
    assert all(any(f"var(--s{number})" in style for style in styles) for number in (0, 1))
    assert "#" not in "".join(styles)
    assert {"a: 10", "b: 10"} <= set((marks[0].findtext("title") or "").split("\n"))
    assert "0" in [text.text for text in svg.iter("text")]


@pytest.mark.long("the same page without its pictures")
def test_without_matplotlib_the_page_has_its_tables_and_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = HandmadeExport(tmp_path)
    export.commits(3)
    monkeypatch.setattr(plots, "AVAILABLE", False)
    text = made(tmp_path)
    assert "<svg" not in text and "klog[plots]" in text and text.count("<table>") == 2
    assert page.notes(page.gather(None, str(tmp_path))) == (page.NO_PLOTS,)
    monkeypatch.setattr(plots, "AVAILABLE", True)
    assert "klog[plots]" not in made(tmp_path) and "<svg" in made(tmp_path)


def test_what_is_behind_is_a_table(tmp_path: Path) -> None:
    export = HandmadeExport(tmp_path, "a<b")
    export.commits(1)
    facts = page.gather(None, str(tmp_path))
    facts.lag = [ExportStatus("a<b", 0, 0, 900, 12_345, 90_000), ExportStatus("a<b", 1, 0, 0, 0, 0)]
    text = page.render(facts)
    assert "<tr><td>a&lt;b-0</td><td>12.3 k</td><td>1.5 min</td></tr>" in text
    assert "a&lt;b-1" not in text


@NEEDED
def test_a_page_fits_a_phone_and_a_desktop(tmp_path: Path) -> None:
    """Topics have names of up to 249 characters, without a space."""
    export = HandmadeExport(tmp_path / "root", "orders", "clicks." + "x" * 200)
    for number in range(3):
        export.commit(5, at_ms=NOW_MS + number * HOUR_MS, age_ms=2500, gap=20 if number == 1 else 0)
    check_fits(made(export.path), tmp_path)


def test_an_export_without_a_batch_has_a_page(tmp_path: Path) -> None:
    HandmadeExport(tmp_path)
    assert "nothing" in made(tmp_path)


@pytest.mark.long("test_a_page_says_what_is_exported_and_needs_nothing is the page")
def test_what_is_wrong_stands_on_it(tmp_path: Path) -> None:
    export = HandmadeExport(tmp_path)
    export.commits(3)
    assert "unbroken" in made(tmp_path)
    assert "whole" in made(tmp_path, thorough=True)
    file = next(tmp_path.glob("data/batch=0000000001/*.parquet"))
    file.unlink()
    assert "unbroken" in made(tmp_path)
    assert "missing-file" in made(tmp_path, thorough=True)
    (tmp_path / export.place.manifest_path(2)).write_bytes(b"{}")
    assert Path(export.place.manifest_path(2)).name in made(tmp_path)


def test_a_few_absurd_times_do_not_squeeze_the_rest(tmp_path: Path) -> None:
    export = HandmadeExport(tmp_path)
    for number in range(6):
        export.commit(400, at_ms=NOW_MS + number * HOUR_MS)
    export.commit(1, at_ms=NOW_MS + 6 * HOUR_MS, age_ms=NOW_MS)  # the year 1970
    text = made(tmp_path)
    assert re.search(r"\b2 [^<]*times", text)


def test_times_beyond_the_calendar_are_shown_as_years(tmp_path: Path) -> None:
    export = HandmadeExport(tmp_path)
    export.commit(2, at_ms=NOW_MS)
    export.commit(2, at_ms=NOW_MS + HOUR_MS, age_ms=-(2**53 // 10))  # the year 30569
    text = made(tmp_path)
    assert "year 30569" in text
    assert text.count("<text") < 600  # some ticks on each axis, not one for each year


def test_the_command_writes_a_file_or_stdout(tmp_path: Path) -> None:
    export = HandmadeExport(tmp_path / "root")
    export.commits(2)
    ran = klog("export", "report", export.path, "-O", tmp_path / "x.html", "--without-brokers", "-o", "json")
    assert (ran.code, ran.rows[0]["batches"], ran.rows[0]["state"]) == (0, 2, "unread")
    assert ran.rows[0]["bytes"] == (tmp_path / "x.html").stat().st_size
    assert klog("export", "report", export.path, "-O", "-", "--without-brokers").stdout.startswith("<!doctype html>")
    (export.path / export.place.manifest_path(1)).unlink()
    broken = klog("export", "report", export.path, "-O", tmp_path / "x.html", "--without-brokers", "-o", "json")
    assert (broken.code, broken.rows[0]["state"]) == (1, "broken")
    assert klog("export", "report", export.path, "-O", tmp_path / "no" / "x", "--without-brokers").code == 1


def test_words_for_counts() -> None:
    words = {0: "0", 7: "7", 950: "950", 999.9: "1 k", 12_345: "12.3 k", 4_000_000: "4 M"}
    assert {value: value_texts.count_text(value) for value in words} == words


def test_words_for_sizes_and_durations() -> None:
    assert [value_texts.size_text(one) for one in (0, 999, 1500, 2e9)] == ["0 B", "999 B", "1.5 KB", "2 GB"]
    assert [value_texts.duration_text(one) for one in (0, 350, 2500, 90_000, 7_200_000, 9e7)] == [
        *("0 ms", "350 ms", "2.5 s", "1.5 min", "2 h", "1 d"),
    ]


def test_bins_are_round_and_hold_both_ends() -> None:
    for last in (0, 1, 59_999, HOUR_MS, 30 * 24 * HOUR_MS, 4000 * 24 * HOUR_MS):
        bins = plots.bins_for(NOW_MS, NOW_MS + last, 90)
        assert bins.count <= 90
        assert bins.holding(NOW_MS) == 0
        assert bins.holding(NOW_MS + last) == bins.count - 1
    assert plots.bins_for(0, HOUR_MS, 90, 600_000).width_ms % 600_000 == 0
