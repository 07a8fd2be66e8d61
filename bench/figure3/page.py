"""The page of the running system: the picture, the tiers, what is broken, the online query's answer, what chaos did."""

from __future__ import annotations

from collections.abc import Mapping

from bench.figure3.facts import Facts
from bench.figure3.picture import Place, draw
from klog import __version__
from klog.render.page import Section, Tile, render_page
from klog.render.value_texts import count_text, duration_text, moment_text
from klog.render.visible import visible

REFRESH_S = 2
FAULTS_SHOWN = 40


def render(facts: Facts, places: Mapping[str, Place], *, is_live: bool) -> str:
    """As HTML. ``is_live``: browsers load it again every `REFRESH_S`; a written file stays as it is."""
    sections = [
        Section(
            "The paper's Figure 3, running",
            "On each arrow: messages a second, how long half of the latest were under way since their front end, and "
            "messages that are still to come. A dashed arrow moves nothing now.",
            plots=[("scroll", draw(facts, places))],
        ),
        *_verdict(facts),
        _tiers(facts),
        *_answer(facts),
        *_faults(facts),
    ]
    return render_page(
        name="scripts/figure3",
        title="Figure 3",
        about=(("", f"At {moment_text(facts.now_ms)} UTC, after {duration_text(round(facts.running_s * 1000))}"),),
        tiles=_tiles(facts),
        findings=[visible(one) for one in facts.broken],
        sections=sections,
        footer=visible(" ".join([f"Made by klog {__version__}.", *facts.notes])),
        refresh_s=REFRESH_S if is_live else None,
    )


def _tiles(facts: Facts) -> list[Tile]:
    tiles = [
        Tile(
            visible(name), count_text(messages), "messages" if spread is None else _delays(spread.p50_ms, spread.p99_ms)
        )
        for name, messages, spread in facts.tiers
    ]
    broken = len(facts.broken)
    return [*tiles, Tile("Broken now", str(broken), "see below" if broken else "", "bad" if broken else "good")]


def _delays(p50_ms: int, p99_ms: int) -> str:
    return f"p50 {duration_text(p50_ms)}, p99 {duration_text(p99_ms)}"


def _tiers(facts: Facts) -> Section:
    rows = [
        (
            visible(name),
            f"{messages:,}",
            *(("–", "–", "–") if one is None else map(duration_text, (one.p50_ms, one.p99_ms, one.worst_ms))),
        )
        for name, messages, one in facts.tiers
    ]
    said = "From the stamp of the front end until a message was committed there, since the beginning."
    return Section("Delays", said, heads=("Tier", "Messages", "p50", "p99", "Worst"), rows=rows)


def _verdict(facts: Facts) -> list[Section]:
    if not facts.verdict:
        return []
    said = "Read again from the stamps of the messages and the last counts of the front ends."
    heads, *rows = [[visible(cell) for cell in row] for row in facts.verdict]
    return [Section("Each message in each tier exactly once", said, heads=heads, rows=rows)]


def _answer(facts: Facts) -> list[Section]:
    if not facts.answer:
        return []
    heads, *rows = [[visible(cell) for cell in row] for row in facts.answer]
    return [Section("Online query", visible(facts.asked), heads=heads, rows=rows)]


def _faults(facts: Facts) -> list[Section]:
    if not facts.faults:
        return []
    shown = facts.faults[-FAULTS_SHOWN:][::-1]
    rows = [
        (
            f"{one.at_s:.1f} s",
            one.fault,
            visible(one.part),
            "now" if one.healed_s is None else f"{one.healed_s - one.at_s:.1f} s",
        )
        for one in shown
    ]
    said = f"The last {len(rows)} of {len(facts.faults)}." if len(facts.faults) > len(rows) else ""
    return [Section("Faults", said, heads=("At", "Fault", "Part", "Lasted"), rows=rows)]
