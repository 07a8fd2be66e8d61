"""Counts, sizes and durations as short texts, and the bins of a plot."""

from __future__ import annotations

from klog.render import plots, value_texts

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


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
