"""Batches that were merged into fewer files: their manifests, each and combined.

The manifests with which batches were committed are kept, byte for byte, so that the chain can be followed through them
(a manifest a line, as a JSON string): in ``_history.gz`` beside the manifest, or, where batches are committed by
manifests, in ``_klog/commits`` as ever.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from klog.errors import Refused
from klog.export.manifest import ExportedPartition, Manifest, sha256
from klog.export.root import ExportRoot, aside
from klog.names import TopicPartition

HISTORY = "_history.gz"
"""Beside the manifest."""
_COMBINED: Final = ("partitions", "gaps", "windows", "schema_ids")
UNPACKED_BYTES_MAX: Final = 1 << 30
"""A manifest has some KB."""


def pack(texts: Sequence[bytes]) -> bytes:
    """Manifests, as they were committed, as one file. Refused where they are too many."""
    lines = "".join(json.dumps(text.decode()) + "\n" for text in texts)
    data = lines.encode()
    if len(data) > UNPACKED_BYTES_MAX:
        raise Refused(
            f"{len(texts)} batches cannot be merged into one: their manifests have {len(data)} bytes, and "
            f"{UNPACKED_BYTES_MAX} can be kept together"
        )
    return gzip.compress(data, compresslevel=6, mtime=0)


def unpack(data: bytes, path: str) -> list[bytes]:
    """Refused, naming the file, if `pack` did not write it."""
    try:
        return [json.loads(line).encode() for line in _unpacked(data).splitlines()]
    except (OSError, EOFError, ValueError, AttributeError, RecursionError) as error:
        raise Refused(f"{path} is not a history of merged batches: {error}") from None


def _unpacked(data: bytes) -> bytes:
    """ValueError where it is more than `pack` writes; OSError and EOFError as gzip raises them."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        found = file.read(UNPACKED_BYTES_MAX + 1)
    if len(found) > UNPACKED_BYTES_MAX:
        raise ValueError(f"it is of more than {UNPACKED_BYTES_MAX} bytes when it is unpacked")
    return found


def texts_of(place: ExportRoot, manifest: Manifest) -> list[bytes]:
    """The manifests, as they were committed, of the batches that this one speaks for. Refused where one is missing."""
    if not place.by_rename:
        paths = [f"_klog/commits/{batch:010d}.json" for batch in range(manifest.first_batch, manifest.batch + 1)]
        return [place.existing(path) for path in paths]
    if manifest.merged is None:
        return [place.existing(place.manifest_path(manifest.batch))]
    path = f"{aside(manifest.batch, manifest.run)}/{HISTORY}"
    return unpack(place.existing(path), place.store.location(path))


def originals(place: ExportRoot, manifest: Manifest) -> list[Manifest]:
    """The same as manifests, in order; the manifest itself where nothing was merged."""
    if manifest.merged is None:
        return [manifest]
    where = f"the history of {place.where(manifest.batch)}"
    return [Manifest.from_json(text, where) for text in texts_of(place, manifest)]


def check(place: ExportRoot, manifest: Manifest) -> list[str]:
    """Problems in the history of merged batches: each must follow the one before it, and all must agree."""
    if manifest.merged is None:
        return []
    where = place.where(manifest.batch)
    try:
        texts = texts_of(place, manifest)
        parts = [Manifest.from_json(text, f"the history of {where}") for text in texts]
    except Refused as error:
        return [error.message]
    expected = list(range(manifest.first_batch, manifest.batch + 1))
    if [part.batch for part in parts] != expected:
        return [f"{where}: its history is not that of batches {expected[0]} to {expected[-1]}"]
    found = []
    previous = manifest.previous_sha256
    for part, text in zip(parts, texts, strict=True):
        if part.previous_sha256 != previous:
            found.append(f"{where}: in its history batch {part.batch} does not follow the one before it")
        previous = sha256(text)
    if previous != manifest.merged.last_sha256:
        found.append(f"{where}: the last manifest of its history is another than batch {manifest.batch + 1} names")
    said = combine(parts)
    if any(getattr(said, name) != getattr(manifest, name) for name in _COMBINED):
        found.append(f"{where} says something else than the batches that were merged into it")
    return found


def combine(parts: Sequence[Manifest]) -> Manifest:
    """The last of batches in their order, with the partitions, gaps, windows and schemas of all."""
    partitions: dict[TopicPartition, ExportedPartition] = {}
    windows: dict[tuple[str, int], int] = {}
    for manifest in parts:
        for one, part in manifest.partitions.items():
            partitions[one] = _joined(partitions[one], part) if one in partitions else part
        for window, messages in manifest.windows.items():
            windows[window] = windows.get(window, 0) + messages
    return replace(
        parts[-1],
        partitions=partitions,
        gaps=tuple(gap for manifest in parts for gap in manifest.gaps),
        windows=windows,
        schema_ids=tuple(sorted({schema_id for manifest in parts for schema_id in manifest.schema_ids})),
    )


def _joined(one: ExportedPartition, after: ExportedPartition) -> ExportedPartition:
    def of_both(left: int | None, right: int | None) -> list[int]:
        return [value for value in (left, right) if value is not None]

    counted = of_both(one.broker_messages, after.broker_messages)
    return replace(
        after,
        from_offset=one.from_offset,
        messages=one.messages + after.messages,
        broker_messages=sum(counted) if len(counted) == 2 else None,
        first_offset=next(iter(of_both(one.first_offset, after.first_offset)), None),
        last_offset=next(iter(of_both(after.last_offset, one.last_offset)), None),
        timestamp_ms_min=min(of_both(one.timestamp_ms_min, after.timestamp_ms_min), default=None),
        timestamp_ms_max=max(of_both(one.timestamp_ms_max, after.timestamp_ms_max), default=None),
        undecodable=one.undecodable + after.undecodable,
        checksum=_sum_of_checksums(one, after),
    )


def _sum_of_checksums(one: ExportedPartition, after: ExportedPartition) -> str | None:
    """Checksums of parts add up (`klog.export.checksum`, which loads numpy); None where one is not known."""
    known = [part.checksum for part in (one, after) if part.checksum is not None]
    if len(known) < sum(1 for part in (one, after) if part.messages):
        return None
    return f"{sum(int(value, 16) for value in known) % 2**64:016x}" if known else None
