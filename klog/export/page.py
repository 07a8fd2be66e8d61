"""`klog export report`: an export as one page of HTML that loads nothing. Blocks.

Everything on it comes from the manifests, and from the brokers if they answer; only a thorough check reads the files of
messages. `klog.render.page` makes the page.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from klog import __version__
from klog.errors import KlogError, Refused
from klog.export.history import originals
from klog.export.manifest import WINDOW_MS, ExportedPartition, ExportIdentity, Manifest, moment
from klog.export.root import ExportRoot
from klog.export.rows import ExportStatus
from klog.export.status import losses, status
from klog.render import plots
from klog.render.page import NO_PLOTS, Section, Tile, plotted, render_page
from klog.render.plots import Plot
from klog.render.value_texts import count_text, duration_text, moment_text, size_text

BATCHES_SHOWN = 15
FINDINGS_SHOWN = 50
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
    """What the manifests and the brokers know of an export."""

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
    """Problems of the export are part of the facts, not an error.

    ``thorough``: read every file, as `klog export verify` does. NoSuchThing if the folder holds no export.
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
        from klog.export.verify import verify

        rows = verify(bootstrap if facts.lag is not None else None, root)
        facts.findings += [f"{row.state}: {row.message}" for row in rows if row.state != "ok"]
        facts.state = "ok"
    facts.findings = list(dict.fromkeys(facts.findings))
    if facts.findings:
        facts.state = "broken"
    return facts


def render(facts: Facts) -> str:
    """The page. Without matplotlib it has no plots, and says so."""
    sections = [
        *([] if plots.AVAILABLE or not facts.manifests else [Section("Plots", NO_PLOTS)]),
        _by_message_time(facts),
        _by_commit("Messages by commit", facts, messages_of, count_text),
        _by_commit("Bytes by commit", facts, lambda one: sum(file.bytes for file in one.files), size_text),
        _delays(facts),
        _lag(facts),
        _topics(facts),
        _gaps(facts),
        _batches(facts),
    ]
    return render_page(
        name=facts.root.rstrip("/").rsplit("/", 1)[-1] or facts.root,
        title="klog export",
        about=(
            ("", "Export of "),
            ("b", ", ".join(sorted(facts.identity.topic_ids))),
            ("", " to "),
            ("code", facts.root),
        ),
        tiles=_tiles(facts),
        findings=facts.findings[:FINDINGS_SHOWN],
        sections=[section for section in sections if section is not None],
        footer=(
            f"Made by klog {__version__} at {moment_text(facts.now_ms)} UTC. Cluster "
            f"{facts.identity.cluster_id or 'unknown'}, format {facts.identity.format}, begun "
            f"{facts.identity.created_at}. All times are UTC."
        ),
    )


def notes(facts: Facts) -> tuple[str, ...]:
    """What a user must know beside the page: its problems, and that it has no plots."""
    return (*facts.findings, *([] if plots.AVAILABLE else [NO_PLOTS]))


def messages_of(manifest: Manifest) -> int:
    return sum(part.messages for part in manifest.partitions.values())


def committed_ms(manifest: Manifest) -> float:
    """When it was committed, since the epoch."""
    return moment(manifest.committed_at).timestamp() * 1000


# --- Tiles ------------------------------------------------------------------------------------------------------------


def _tiles(facts: Facts) -> list[Tile]:
    last = facts.manifests[-1] if facts.manifests else None
    return [
        Tile("Messages", f"{facts.messages:,}", f"in {len(facts.manifests):,} batches"),
        Tile("Files", f"{facts.files:,}", size_text(facts.bytes)),
        Tile(
            "Last commit",
            f"{duration_text(max(0.0, facts.now_ms - committed_ms(last)))} ago" if last else "–",
            moment_text(committed_ms(last)) if last else "nothing yet",
        ),
        _lag_tile(facts),
        _state_tile(facts),
    ]


def _lag_tile(facts: Facts) -> Tile:
    if facts.lag is None:
        return Tile("Behind", "–", "not known")
    known = [row.lag for row in facts.lag if row.lag is not None]
    oldest = max((row.lag_ms or 0 for row in facts.lag), default=0)
    if not known and facts.lag:
        return Tile("Behind", "?", "the brokers cannot count")
    behind = sum(known)
    more = f"messages; the oldest waits {duration_text(oldest)}" if behind else "all is exported"
    return Tile("Behind", count_text(behind) if behind else "nothing", more, "" if behind else "good")


def _state_tile(facts: Facts) -> Tile:
    batches = f"chain of {len(facts.manifests):,} manifests"
    match facts.state:
        case "broken":
            count = len(facts.findings)
            return Tile("Check", f"{count} problem{'s' if count != 1 else ''}", "see below", "bad")
        case "ok":
            return Tile("Check", "whole", f"{batches}, {facts.files:,} files read", "good")
    return Tile("Check", "unbroken", f"{batches}; files not read", "good")


# --- Plots ------------------------------------------------------------------------------------------------------------


def _by_message_time(facts: Facts) -> Section | None:
    """Messages by the windows of their own times, one colour per topic."""
    windows: dict[tuple[str, int], int] = {}
    for manifest in facts.manifests:
        for key, messages in manifest.windows.items():
            windows[key] = windows.get(key, 0) + messages
    if not windows:
        return None
    first, last, outside = _middle(windows)
    names = _largest_topics(windows)

    def plot(count_max: int) -> Plot:
        bins = plots.bins_for(first, last, count_max, WINDOW_MS)
        values = {name: [0.0] * bins.count for name in names}
        for (topic, start_ms), messages in windows.items():
            if (at := bins.holding(start_ms)) is not None:
                values[topic if topic in values else _OTHERS][at] += messages
        return plots.Bars(bins, [plots.Series(*one) for one in values.items()], count_text)

    said = "By the timestamps of the messages."
    if outside:
        said += f" {outside:,} with times far outside are not shown."
    return plotted("Messages by their time", said, plot, names)


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


def _by_commit(
    title: str, facts: Facts, of: Callable[[Manifest], float], unit: Callable[[float], str]
) -> Section | None:
    if not facts.manifests:
        return None
    times = [committed_ms(one) for one in facts.manifests]
    total = sum(of(one) for one in facts.manifests)

    def plot(count_max: int) -> Plot:
        bins = plots.bins_for(int(min(times)), int(max(times)), count_max)
        values = [0.0] * bins.count
        for at_ms, manifest in zip(times, facts.manifests, strict=True):
            if (at := bins.holding(at_ms)) is not None:
                values[at] += of(manifest)
        return plots.Bars(bins, [plots.Series("committed", values)], unit)

    spent = (max(times) - min(times)) / 1000
    rate = f", {unit(total / spent)}/s from the first commit to the last" if spent >= 1 else ""
    merged = " Merging has reduced the bytes since these commits." if facts.merged and unit is size_text else ""
    return plotted(title, f"{unit(total)} in all{rate}.{merged}", plot)


def _delays(facts: Facts) -> Section | None:
    """How long after its own time a message was committed: the newest and the oldest of each batch."""
    found = []
    for manifest in facts.manifests:
        at_ms = committed_ms(manifest)
        oldest, newest = _times(manifest.partitions.values())
        if newest is not None and oldest is not None:
            low, high = max(0.0, at_ms - newest), max(0.0, at_ms - oldest)
            title = (
                f"batch {manifest.batch}, {moment_text(at_ms)} UTC\nnewest message: {duration_text(low)}\n"
                f"oldest message: {duration_text(high)}"
            )
            found.append(plots.Spread(at_ms, low, high, title))
    if not found:
        return None
    middle = sorted(one.high_ms for one in found)[len(found) // 2]

    def plot(count_max: int) -> Plot:
        return plots.Spreads(_thinned(found, count_max * 3), int(found[0].at_ms), int(found[-1].at_ms))

    said = (
        "From a message's own time to its commit; a bar reaches from the newest message of a batch to its oldest. "
        f"The median wait of the oldest is {duration_text(middle)}."
    )
    return plotted("Delay between message and commit", said, plot)


def _times(parts: Iterable[ExportedPartition]) -> tuple[int | None, int | None]:
    """The times of the oldest and the newest message, in ms; None without messages."""
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


# --- Tables -----------------------------------------------------------------------------------------------------------


def _lag(facts: Facts) -> Section | None:
    if facts.lag is None:
        return Section("Behind the log", f"The lag of the export is not known: {facts.no_lag}")
    behind = sorted((row for row in facts.lag if row.lag), key=lambda row: -(row.lag or 0))
    rows = [
        (f"{row.topic}-{row.partition}", count_text(row.lag or 0), duration_text(row.lag_ms or 0))
        for row in behind[:PARTITIONS_SHOWN]
    ]
    if not rows:
        return None
    more = f" The {PARTITIONS_SHOWN} largest of {len(behind)}." if len(behind) > PARTITIONS_SHOWN else ""
    said = f"Messages that are not exported yet, and the age of the oldest of them.{more}"
    return Section("Behind the log", said, heads=("Partition", "Messages", "Age of the oldest"), rows=rows)


def _topics(facts: Facts) -> Section:
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
                moment_text(oldest) if oldest is not None else "–",
                moment_text(newest) if newest is not None else "–",
                behind,
            )
        )
    return Section("Topics", heads=("Topic", "Partitions", "Messages", "Oldest", "Newest", "Behind"), rows=rows)


def _gaps(facts: Facts) -> Section | None:
    rows = [
        (f"{gap.topic}-{gap.partition}", f"{gap.from_offset:,}", f"{gap.to_offset:,}", str(one.batch), gap.reason)
        for one in facts.manifests
        for gap in one.gaps
    ]
    if not rows:
        return None
    said = "Offsets that this export left out on purpose."
    return Section("Gaps", said, heads=("Partition", "From", "To", "Batch", "Why"), rows=rows)


def _batches(facts: Facts) -> Section | None:
    shown = facts.manifests[-BATCHES_SHOWN:][::-1]
    rows = [
        (
            str(one.batch),
            moment_text(committed_ms(one)),
            f"{messages_of(one):,}",
            size_text(sum(file.bytes for file in one.files)),
            f"{len(one.files):,}",
            one.engine,
        )
        for one in shown
    ]
    if not rows:
        return None
    said = f"The last {len(rows)} of {len(facts.manifests):,}." if len(facts.manifests) > len(rows) else ""
    if facts.merged:
        said += f" {facts.merged:,} of them were merged into fewer files later."
    heads = ("Batch", "Committed", "Messages", "Bytes", "Files", "Engine")
    return Section("Batches", said.strip(), heads=heads, rows=rows)
