"""`klog export gc`: finds files of an export that it no longer uses, and removes them. Blocks.

These are what killed runs left, what they wrote and never committed, and what compaction replaced. A file counts only
when it has not changed for a while. Readers of `data`, and readers that use the manifests, read none of these files.
The wait is for one case: a reader that listed an object store before a compaction may still read the replaced files.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from klog.export.compact import REPLACED
from klog.export.manifest import moment
from klog.export.root import STAGING_TTL_S, ExportRoot
from klog.export.stores.store import Store
from klog.metrics import Count

STEPS = ("found", "removing", "removed", "done")
"""The steps of `collect`; ``removing`` and ``removed`` per row. A process killed at any of them harms no batch."""

_REPLACED_AT = re.compile(r"(\d{8}T\d{6}Z)-.+")
_TEMPORARY = re.compile(r"\.[0-9a-f-]{36}")


@dataclass(frozen=True)
class Garbage:
    """A folder or file to remove. ``what``: ``staging`` (of a dead run), ``orphan`` (written and never committed),
    ``replaced`` (by compaction) or ``temporary``. ``age_s``: time since it was last modified, or replaced."""

    what: str
    path: str
    files: int
    bytes: int
    age_s: int


def find_garbage(root: str | Store, *, older_than_s: float = STAGING_TTL_S) -> list[Garbage]:
    """Files that no batch uses, unchanged for ``older_than_s``. NoSuchThing if the folder holds no export."""
    place = ExportRoot(root)
    place.existing_identity()
    store, now = place.store, time.time()
    found = [
        ("staging" if place.by_rename else "orphan", folder, store.touched_s(folder)) for folder in place.uncommitted()
    ]
    found += [("orphan", folder, store.touched_s(folder)) for folder in place.orphans()]
    found += [("replaced", folder, at_s) for folder, at_s in _replaced(place)]
    names = [name for name in store.names("_klog") if _TEMPORARY.fullmatch(name)]
    if names:
        times = {one.path: one.modified_s for one in store.walk("_klog")}
        found += [("temporary", f"_klog/{name}", times.get(f"_klog/{name}", now)) for name in names]
    rows = []
    for what, path, at_s in found:
        if now - at_s >= older_than_s:
            files = store.walk(path)
            rows.append(Garbage(what, path, len(files) or 1, sum(one.bytes for one in files), int(now - at_s)))
    return rows


def collect(
    root: str | Store,
    rows: Sequence[Garbage],
    on_step: Callable[[str], None] = lambda step: None,
    count: Count | None = None,
) -> list[Garbage]:
    """Remove these rows, except what was changed or committed since. Returns the removed rows, whose bytes ``count``
    counts."""
    count = count or Count()
    count.total = sum(row.bytes for row in rows)
    place = ExportRoot(root)
    place.existing_identity()
    on_step("found")
    removed = []
    youngest = min((row.age_s for row in rows), default=0)
    still = {row.path for row in find_garbage(place.store, older_than_s=youngest)}
    for row in rows:
        if row.path in still:
            on_step("removing")
            place.store.remove(row.path)
            removed.append(row)
            count.done += row.bytes
            on_step("removed")
    on_step("done")
    return removed


def _replaced(place: ExportRoot) -> list[tuple[str, float]]:
    """(folder, time of replacement) per folder that compaction replaced."""
    if place.by_rename:
        matches = map(_REPLACED_AT.fullmatch, place.store.names(REPLACED))
        return [
            (f"{REPLACED}/{match[0]}", datetime.strptime(match[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp())
            for match in matches
            if match
        ]
    there = {f"data/{name}" for name in place.store.names("data")}
    found: dict[str, float] = {}
    for merge in place.all_merges():
        at_s = moment(merge.committed_at if merge.merged is None else merge.merged.at).timestamp()
        for batch in range(merge.first_batch, merge.batch + 1):
            folder = place.written_folder(batch, place.committed(batch)[0].run)
            found.setdefault(folder, at_s)
        for earlier in place.all_merges():
            if earlier is merge:
                break
            if merge.first_batch <= earlier.batch <= merge.batch:
                found.setdefault(place.written_folder(earlier.batch, earlier.run), at_s)
    return [(folder, at_s) for folder, at_s in found.items() if folder in there]
