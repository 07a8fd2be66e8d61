"""`klog export report`: an export as one page of HTML, with plots and nothing from elsewhere. Blocks.

Everything on it comes from the manifests, and from the brokers where they answer; the files of messages are read only
where a thorough check is asked for. Each plot is drawn twice, for wide screens and for phones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from klog import __version__
from klog.errors import KlogError, Refused
from klog.ops.export import plots
from klog.ops.export.history import originals
from klog.ops.export.manifest import WINDOW_MS, ExportedPartition, ExportIdentity, Manifest, moment
from klog.ops.export.plots import count_words, duration_words, moment_words, size_words
from klog.ops.export.root import ExportRoot
from klog.ops.export.rows import ExportStatus
from klog.ops.export.status import losses, status
from klog.ops.export.style import STYLE
from klog.storage.filesystem import translated

WIDE, NARROW = (1000, 220, 90), (340, 190, 40)
"""(width, height, at most so many bars)."""

BATCHES_SHOWN = 15
PARTITIONS_SHOWN = 20
_OTHERS = "others"


@dataclass(frozen=True)
class ExportPage:
    """The file that was made."""

    file: str
    bytes: int
    batches: int
    messages: int
    state: str
    """``ok``, ``unread`` (the chain is whole, the files were not read) or ``broken``."""


@dataclass
class Facts:
    """All that the page shows."""

    root: str
    identity: ExportIdentity
    manifests: list[Manifest] = field(default_factory=list)
    """As they were committed, in order; what compaction merged is here in its parts."""
    files: int = 0
    bytes: int = 0
    merged: int = 0
    """Committed batches that lie in merged folders."""
    lag: list[ExportStatus] | None = None
    no_lag: str = "not asked for"
    state: str = "unread"
    findings: list[str] = field(default_factory=list)
    now_ms: float = 0.0

    @property
    def messages(self) -> int:
        return sum(messages_of(one) for one in self.manifests)


def gather(bootstrap: str | None, root: str, *, thorough: bool = False, no_brokers: str = "not asked for") -> Facts:
    """What there is to show; what is wrong with the export is part of it, not an error.

    ``thorough``: every file is read, as `klog export verify` does. NoSuchThing where there is no export.
    """
    place = ExportRoot(root)
    facts = Facts(str(place), place.existing_identity(), no_lag=no_brokers, now_ms=time.time() * 1000)
    for batch in place.batch_numbers():
        try:
            manifest, _ = place.manifest(batch)
            facts.manifests.extend(originals(place, manifest))
        except Refused as error:
            facts.findings.append(error.message)
            continue
        facts.files += len(manifest.files)
        facts.bytes += sum(file.bytes for file in manifest.files)
        facts.merged += manifest.batch - manifest.first_batch + 1 if manifest.merged else 0
    try:
        for _ in place.chain():
            pass
    except Refused as error:
        facts.findings.append(error.message)
    if bootstrap is not None:
        try:
            facts.lag = status(bootstrap, root)
            facts.findings += losses(facts.lag)
        except KlogError as error:
            facts.no_lag = error.message
            if isinstance(error, Refused):  # another cluster or topic than was exported: no run will ever go on
                facts.findings.append(error.message)
    if thorough:
        from klog.ops.export.verify import verify

        rows = verify(bootstrap if facts.lag is not None else None, root)
        facts.findings += [f"{row.state}: {row.message}" for row in rows if row.state != "ok"]
        facts.state = "ok"
    facts.findings = list(dict.fromkeys(facts.findings))
    if facts.findings:
        facts.state = "broken"
    return facts


def render(facts: Facts) -> str:
    """The page."""
    name = facts.root.rstrip("/").rsplit("/", 1)[-1] or facts.root
    topics = ", ".join(sorted(facts.identity.topic_ids))
    body = [
        f"<header><h1>{escape(name)}</h1><p>Export of <b>{escape(topics)}</b> to <code>{escape(facts.root)}</code></p>"
        f"</header>",
        _tiles(facts),
        _findings(facts),
        _by_message_time(facts),
        _by_commit("Messages by commit", facts, messages_of, count_words),
        _by_commit("Bytes by commit", facts, lambda one: sum(file.bytes for file in one.files), size_words),
        _delays(facts),
        _lag(facts),
        _topics(facts),
        _gaps(facts),
        _batches(facts),
        f"<footer>Made by klog {escape(__version__)} at {moment_words(facts.now_ms)} UTC. Cluster "
        f"{escape(facts.identity.cluster_id or 'unknown')}, format {escape(facts.identity.format)}, "
        f"begun {escape(facts.identity.created_at)}. All times are UTC.</footer>",
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(name)} – klog export</title>'
        f"<style>{STYLE}</style>"
    )
    main = "\n".join(part for part in body if part)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>\n{main}\n</main></body></html>\n'


def write(target: Path, data: bytes) -> None:
    """Write the page, or say why it cannot be: StorageError."""
    try:
        target.write_bytes(data)
    except OSError as error:
        raise translated(error, "write", str(target)) from error


def messages_of(manifest: Manifest) -> int:
    return sum(part.messages for part in manifest.partitions.values())


def committed_ms(manifest: Manifest) -> float:
    """When it was committed, since the epoch."""
    return moment(manifest.committed_at).timestamp() * 1000


# --- What stands above ------------------------------------------------------------------------------------------------


def _tiles(facts: Facts) -> str:
    last = facts.manifests[-1] if facts.manifests else None
    tiles = [
        ("Messages", f"{facts.messages:,}", f"in {len(facts.manifests):,} batches"),
        ("Files", f"{facts.files:,}", size_words(facts.bytes)),
        (
            "Last commit",
            f"{duration_words(max(0.0, facts.now_ms - committed_ms(last)))} ago" if last else "–",
            moment_words(committed_ms(last)) if last else "nothing yet",
        ),
        _lag_tile(facts),
        _state_tile(facts),
    ]
    return '<section class="tiles">' + "".join(_tile(*one) for one in tiles) + "</section>"


def _tile(name: str, value: str, more: str, kind: str = "") -> str:
    return f'<div class="tile {kind}"><h3>{name}</h3><p>{escape(value)}</p><small>{escape(more)}</small></div>'


def _lag_tile(facts: Facts) -> tuple[str, str, str, str]:
    if facts.lag is None:
        return "Behind", "–", "not known", ""
    known = [row.lag for row in facts.lag if row.lag is not None]
    oldest = max((row.lag_ms or 0 for row in facts.lag), default=0)
    if not known and facts.lag:
        return "Behind", "?", "the brokers cannot count", ""
    behind = sum(known)
    more = f"messages; the oldest waits {duration_words(oldest)}" if behind else "all is exported"
    return "Behind", count_words(behind) if behind else "nothing", more, "" if behind else "good"


def _state_tile(facts: Facts) -> tuple[str, str, str, str]:
    batches = f"chain of {len(facts.manifests):,} manifests"
    match facts.state:
        case "broken":
            return "Check", f"{len(facts.findings)} wrong", "see below", "bad"
        case "ok":
            return "Check", "whole", f"{batches}, {facts.files:,} files read", "good"
    return "Check", "unbroken", f"{batches}; files not read", "good"


def _findings(facts: Facts) -> str:
    if not facts.findings:
        return ""
    items = "".join(f"<li>{escape(one)}</li>" for one in facts.findings[:50])
    return f'<section class="card bad"><h2>What is wrong</h2><ul>{items}</ul></section>'


# --- Plots ------------------------------------------------------------------------------------------------------------


def _card(title: str, said: str, draw: Callable[[int, int, int], str], legend: str = "") -> str:
    both = "".join(f'<div class="{kind}">{draw(*size)}</div>' for kind, size in (("wide", WIDE), ("narrow", NARROW)))
    return f'<section class="card"><h2>{escape(title)}</h2><p class="said">{escape(said)}</p>{legend}{both}</section>'


def _by_message_time(facts: Facts) -> str:
    """Messages by the windows of their own times, a colour a topic."""
    windows: dict[tuple[str, int], int] = {}
    for manifest in facts.manifests:
        for key, messages in manifest.windows.items():
            windows[key] = windows.get(key, 0) + messages
    if not windows:
        return ""
    first, last, outside = _middle(windows)
    names = _largest_topics(windows)

    def draw(width: int, height: int, count_max: int) -> str:
        bins = plots.bins_for(first, last, count_max, WINDOW_MS)
        values = {name: [0.0] * bins.count for name in names}
        for (topic, start_ms), messages in windows.items():
            if (at := bins.holding(start_ms)) is not None:
                values[topic if topic in values else _OTHERS][at] += messages
        return plots.bars(bins, [plots.Series(*one) for one in values.items()], width, height, count_words)

    said = "When the messages say that they were made."
    if outside:
        said += f" {outside:,} with times far outside are not shown."
    return _card("Messages by their time", said, draw, _legend(names))


def _middle(windows: dict[tuple[str, int], int]) -> tuple[int, int, int]:
    """(first window, last window, messages outside): a few absurd times must not squeeze all others into one bar."""
    by_start: dict[int, int] = {}
    for (_, start_ms), messages in windows.items():
        by_start[start_ms] = by_start.get(start_ms, 0) + messages
    starts = sorted(by_start)
    total = sum(by_start.values())
    kept, ahead = list(starts), 0
    trimmed = 0
    for side in (0, -1):
        ahead = 0
        while len(kept) > 2:
            ahead += by_start[kept[side]]
            inner = kept[-1 - side] - kept[1 if side == 0 else -2]
            if ahead * 1000 > total or abs(kept[-1] - kept[0]) < 20 * max(WINDOW_MS, abs(inner)):
                break
            trimmed += by_start[kept.pop(side)]
    return kept[0], kept[-1], trimmed


def _largest_topics(windows: dict[tuple[str, int], int]) -> list[str]:
    """The topics that get a colour, the largest first; the last is for all others."""
    totals: dict[str, int] = {}
    for (topic, _), messages in windows.items():
        totals[topic] = totals.get(topic, 0) + messages
    names = sorted(totals, key=lambda name: (-totals[name], name))
    return names if len(names) <= plots.SERIES_MAX else [*names[: plots.SERIES_MAX - 1], _OTHERS]


def _legend(names: Sequence[str]) -> str:
    if len(names) < 2:
        return ""
    return (
        '<p class="legend">'
        + "".join(f'<span><i class="s{number}"></i>{escape(name)}</span>' for number, name in enumerate(names))
        + "</p>"
    )


def _by_commit(title: str, facts: Facts, of: Callable[[Manifest], float], unit: Callable[[float], str]) -> str:
    if not facts.manifests:
        return ""
    times = [committed_ms(one) for one in facts.manifests]
    total = sum(of(one) for one in facts.manifests)

    def draw(width: int, height: int, count_max: int) -> str:
        bins = plots.bins_for(int(min(times)), int(max(times)), count_max)
        values = [0.0] * bins.count
        for at_ms, manifest in zip(times, facts.manifests, strict=True):
            if (at := bins.holding(at_ms)) is not None:
                values[at] += of(manifest)
        return plots.bars(bins, [plots.Series("committed", values)], width, height, unit)

    spent = (max(times) - min(times)) / 1000
    rate = f", {unit(total / spent)}/s from the first commit to the last" if spent >= 1 else ""
    merged = (
        " As they were committed: merging has made less of them since." if facts.merged and unit is size_words else ""
    )
    return _card(title, f"{unit(total)} in all{rate}.{merged}", draw)


def _delays(facts: Facts) -> str:
    """How long after its own time a message was committed: of each batch the newest and the oldest."""
    found = []
    for manifest in facts.manifests:
        at_ms = committed_ms(manifest)
        oldest, newest = _times(manifest.partitions.values())
        if newest is not None and oldest is not None:
            low, high = max(0.0, at_ms - newest), max(0.0, at_ms - oldest)
            title = (
                f"batch {manifest.batch}, {moment_words(at_ms)} UTC\nnewest message: {duration_words(low)}\n"
                f"oldest message: {duration_words(high)}"
            )
            found.append(plots.Spread(at_ms, low, high, title))
    if not found:
        return ""
    middle = sorted(one.high_ms for one in found)[len(found) // 2]

    def draw(width: int, height: int, count_max: int) -> str:
        shown = _thinned(found, count_max * 3)
        return plots.spreads(shown, int(found[0].at_ms), int(found[-1].at_ms), width, height)

    said = (
        "From a message's own time to its commit; a bar reaches from the newest message of a batch to its oldest. "
        f"In the middle batch the oldest waited {duration_words(middle)}."
    )
    return _card("Delay between message and commit", said, draw)


def _times(parts: Iterable[ExportedPartition]) -> tuple[int | None, int | None]:
    """The oldest and the newest message, in ms; None where there is none."""
    held = [one for one in parts if one.timestamp_ms_min is not None and one.timestamp_ms_max is not None]
    oldest = min((one.timestamp_ms_min for one in held if one.timestamp_ms_min is not None), default=None)
    return oldest, max((one.timestamp_ms_max for one in held if one.timestamp_ms_max is not None), default=None)


def _thinned(points: Sequence[plots.Spread], most: int) -> list[plots.Spread]:
    """At most so many: neighbours become one, from the lowest to the highest of them."""
    group = -(-len(points) // most)
    found = []
    for at in range(0, len(points), group):
        part = points[at : at + group]
        high = max(part, key=lambda one: one.high_ms)
        found.append(high._replace(low_ms=min(one.low_ms for one in part)))
    return found


def _lag(facts: Facts) -> str:
    if facts.lag is None:
        said = f"How far the export is behind is not known: {facts.no_lag}"
        return f'<section class="card"><h2>Behind the log</h2><p class="said">{escape(said)}</p></section>'
    behind = sorted((row for row in facts.lag if row.lag), key=lambda row: -(row.lag or 0))
    if not behind:
        return ""
    rows = []
    for row in behind[:PARTITIONS_SHOWN]:
        words = f"{count_words(row.lag or 0)}, {duration_words(row.lag_ms or 0)}"
        rows.append((f"{row.topic}-{row.partition}", float(row.lag or 0), words))
    more = f" The {PARTITIONS_SHOWN} largest of {len(behind)}." if len(behind) > PARTITIONS_SHOWN else ""
    said = f"Messages that are not exported yet, and the age of the oldest of them.{more}"
    return _card("Behind the log", said, lambda width, height, count_max: plots.levels(rows, width))


# --- Tables -----------------------------------------------------------------------------------------------------------


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], said: str = "") -> str:
    """The first column is a name, the others are numbers or times."""
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    words = f'<p class="said">{escape(said)}</p>' if said else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
    return f'<section class="card"><h2>{escape(title)}</h2>{words}<div class="scroll">{table}</div></section>'


def _topics(facts: Facts) -> str:
    rows = []
    for topic in sorted(facts.identity.topic_ids):
        parts = [part for one in facts.manifests for name, part in one.partitions.items() if name.topic == topic]
        messages = sum(part.messages for part in parts)
        oldest, newest = _times(parts)
        count = len({name.partition for one in facts.manifests for name in one.partitions if name.topic == topic})
        lag = [row for row in facts.lag or () if row.topic == topic]
        known = facts.lag is not None and all(row.lag is not None for row in lag)
        behind = f"{sum(row.lag or 0 for row in lag):,}" if known else "–"
        rows.append(
            (
                topic,
                f"{count or len(lag):,}",
                f"{messages:,}",
                moment_words(oldest) if oldest is not None else "–",
                moment_words(newest) if newest is not None else "–",
                behind,
            )
        )
    return _table("Topics", ("Topic", "Partitions", "Messages", "Oldest", "Newest", "Behind"), rows)


def _gaps(facts: Facts) -> str:
    rows = [
        (f"{gap.topic}-{gap.partition}", f"{gap.from_offset:,}", f"{gap.to_offset:,}", str(one.batch), gap.reason)
        for one in facts.manifests
        for gap in one.gaps
    ]
    if not rows:
        return ""
    said = "Offsets that are not in this export, and were left out on purpose."
    return _table("Gaps", ("Partition", "From", "To", "Batch", "Why"), rows, said)


def _batches(facts: Facts) -> str:
    shown = facts.manifests[-BATCHES_SHOWN:][::-1]
    rows = [
        (
            str(one.batch),
            moment_words(committed_ms(one)),
            f"{messages_of(one):,}",
            size_words(sum(file.bytes for file in one.files)),
            f"{len(one.files):,}",
            one.engine,
        )
        for one in shown
    ]
    if not rows:
        return ""
    said = f"The last {len(rows)} of {len(facts.manifests):,}." if len(facts.manifests) > len(rows) else ""
    if facts.merged:
        said += f" {facts.merged:,} of them were merged into fewer files since."
    return _table("Batches", ("Batch", "Committed", "Messages", "Bytes", "Files", "Engine"), rows, said.strip())
