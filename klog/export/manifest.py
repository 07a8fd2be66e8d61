"""The JSON files of an export: its identity (`ExportIdentity`), and one manifest per batch (`Manifest`).

docs/export-format.md says what their keys mean, `klog.export.root` where they lie. A manifest names every partition of
its topics, also those without new messages, so the last manifest alone says where the next batch begins. The results of
a stream (`klog.streams.export_sink`) have no topics.

A reader ignores keys that it does not know, and refuses a later `layout` than its own. In an earlier one, roots that
commit by renaming have manifests beside the data: they are refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, fields
from datetime import UTC, datetime
from typing import Any

from klog import __version__
from klog.errors import Refused
from klog.names import TopicPartition, nested, unnested

LAYOUT = 3
FIRST_FORMAT = "parquet"
COMMIT_BY_RENAME = "rename"
COMMIT_BY_MANIFEST = "manifest"
COMMITS_BY_TABLE = ("iceberg", "delta")
WINDOW_MS = 600_000
"""Messages are counted per topic and ten minutes of their timestamps, as the audit does (paper section 5)."""


@dataclass(frozen=True)
class ExportIdentity:
    """What a root exports, and from where. The first run fixes it."""

    cluster_id: str | None
    format: str
    topic_ids: dict[str, str | None]
    initial: dict[TopicPartition, int]
    """The offset at which the export of each partition began."""
    created_at: str
    klog: str
    partition_by: str | None = None
    """``day`` or ``hour``: each batch has folders by the messages' timestamps."""
    decode: dict[str, Any] | None = None
    """How values are decoded into typed columns; None: they stay bytes."""
    commit: str = COMMIT_BY_RENAME
    table: dict[str, Any] | None = None
    """Of an export that is a table: its ``name`` and, None for its own, the address of its ``catalog``; and ``append``,
    true, where others made it."""
    stream: str | None = None
    """The id of the query whose results are here, in place of messages of topics (`klog.streams.export_sink`)."""
    max_undecodable: str | None = None
    """How many messages of a run may be undecodable: `undecodable.UndecodableLimit`. None: any number."""

    def to_json(self) -> bytes:
        known = {name: getattr(self, name) for name in (*_OF_IDENTITY, *_OPTIONAL)}
        return _dump(
            {
                "layout": LAYOUT,
                **({"plain": True} if self.commit == COMMIT_BY_RENAME else {}),  # klog 0.2 looks at it
                **{name: value for name, value in known.items() if value is not None or name in _OF_IDENTITY},
                "topics": _nest(self.topic_ids, {one: {"from": at} for one, at in self.initial.items()}),
            }
        )

    @classmethod
    def from_json(cls, data: bytes, path: str) -> ExportIdentity:
        """Refused, with the file's path, if it is not of this kind or has a later layout."""
        try:
            value = _load(data)
            if value["layout"] < LAYOUT and value["commit"] == COMMIT_BY_RENAME:
                raise ValueError(f"{_layout(value)} reads those of 0.2 and later: export to another folder")
            return cls(
                topic_ids={topic: about["id"] for topic, about in value["topics"].items()},
                initial={one: int(about["from"]) for one, about in _flat(value["topics"]).items()},
                **{name: value[name] for name in _OF_IDENTITY},
                **{name: value[name] for name in _OPTIONAL if name in value},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Refused(f"{path} does not describe an export: {_reason(error)}") from None


@dataclass(frozen=True)
class ExportedPartition:
    """What a batch has of one partition. Offsets and timestamps are None if it has no message of it."""

    from_offset: int
    to_offset: int
    messages: int = 0
    broker_messages: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    timestamp_ms_min: int | None = None
    timestamp_ms_max: int | None = None
    leader_epoch: int = -1
    undecodable: int = 0
    """The number of ``messages`` that could not be decoded and are kept as bytes, beside the typed rows."""
    checksum: str | None = None
    """The checksum of the messages as they are in the log (`klog.export.checksum`), in hexadecimal."""


@dataclass(frozen=True)
class Gap:
    """Offsets that were removed from the log before they were exported; the run was allowed to leave them out."""

    topic: str
    partition: int
    from_offset: int
    to_offset: int
    reason: str


@dataclass(frozen=True)
class ExportedFile:
    path: str
    """Relative to the batch's folder."""
    bytes: int
    messages: int


@dataclass(frozen=True)
class Merged:
    """What only the manifest of merged batches has."""

    first_batch: int
    last_sha256: str
    """The hash of the manifest with which the last of them was committed. The next batch refers to it."""
    at: str


@dataclass(frozen=True)
class Manifest:
    """The manifest of one committed batch, or of several merged ones; then ``batch`` is the last of them."""

    batch: int
    run: str
    previous_sha256: str | None
    format: str
    cluster_id: str | None
    topic_ids: dict[str, str | None]
    partitions: dict[TopicPartition, ExportedPartition]
    gaps: tuple[Gap, ...]
    windows: dict[tuple[str, int], int]
    """(topic, the window's start in ms) -> messages."""
    files: tuple[ExportedFile, ...]
    klog: str
    engine: str
    started_at: str
    committed_at: str
    partition_by: str | None = None
    decode: dict[str, Any] | None = None
    schema_ids: tuple[int, ...] = ()
    """The ids of the schemas of the decoded values, ascending."""
    commit: str = COMMIT_BY_RENAME
    merged: Merged | None = None
    stream_batch: int | None = None
    """Of a query's results: the number of the batch of the query."""

    @property
    def first_batch(self) -> int:
        return self.batch if self.merged is None else self.merged.first_batch

    def to_json(self) -> bytes:
        previous = {"batch": self.first_batch - 1, "sha256": self.previous_sha256}
        return _dump(
            {
                "layout": LAYOUT,
                **{name: getattr(self, name) for name in _AS_THEY_ARE},
                "previous": None if self.previous_sha256 is None else previous,
                **({} if self.merged is None else {"merged": asdict(self.merged)}),
                **({} if self.stream_batch is None else {"stream_batch": self.stream_batch}),
                "topics": _nest(
                    self.topic_ids,
                    {
                        one: {
                            "from": part.from_offset,
                            "to": part.to_offset,
                            **{name: getattr(part, name) for name in _PARTITION_KEYS},
                        }
                        for one, part in self.partitions.items()
                    },
                ),
                "gaps": [dict(zip(_GAP_KEYS, astuple(gap), strict=True)) for gap in self.gaps],
                "window_ms": WINDOW_MS,
                "windows": [
                    {"topic": topic, "start_ms": start_ms, "messages": messages}
                    for (topic, start_ms), messages in sorted(self.windows.items())
                ],
                "schema_ids": list(self.schema_ids),
                "files": [asdict(one) for one in self.files],
            }
        )

    @classmethod
    def from_json(cls, data: bytes, path: str) -> Manifest:
        """Refused, with the file's path, if it is not of this kind or has a later layout."""
        try:
            value = _load(data)
            previous = value["previous"]
            merged = Merged(**value["merged"]) if "merged" in value else None
            first_batch = value["batch"] if merged is None else merged.first_batch
            if previous is not None and previous["batch"] != first_batch - 1:
                raise ValueError(f"batch {value['batch']} says that it follows {previous['batch']}")
            _below(value["run"])
            return cls(
                **{name: value[name] for name in _AS_THEY_ARE},
                previous_sha256=None if previous is None else previous["sha256"],
                topic_ids={topic: about["id"] for topic, about in value["topics"].items()},
                partitions={
                    one: ExportedPartition(
                        int(about["from"]),
                        int(about["to"]),
                        **{name: about[name] for name in _PARTITION_KEYS},
                    )
                    for one, about in _flat(value["topics"]).items()
                },
                gaps=tuple(Gap(*(gap[name] for name in _GAP_KEYS)) for gap in value["gaps"]),
                windows={(one["topic"], one["start_ms"]): one["messages"] for one in value["windows"]},
                files=tuple(ExportedFile(_below(one["path"]), one["bytes"], one["messages"]) for one in value["files"]),
                schema_ids=tuple(value["schema_ids"]),
                merged=merged,
                stream_batch=value.get("stream_batch"),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Refused(f"{path} is not a manifest of an export: {_reason(error)}") from None


_OF_IDENTITY = ("format", "partition_by", "decode", "commit", "cluster_id", "created_at", "klog")
_OPTIONAL = ("table", "stream", "max_undecodable")
_AS_THEY_ARE = (
    *("batch", "run", "format", "partition_by", "decode", "commit", "cluster_id"),
    *("klog", "engine", "started_at", "committed_at"),
)
_GAP_KEYS = ("topic", "partition", "from", "to", "reason")
_PARTITION_KEYS = tuple(one.name for one in fields(ExportedPartition))[2:]


def moment(text: str) -> datetime:
    """A timestamp of a manifest: RFC 3339, in UTC."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def now() -> str:
    """This moment, as manifests have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _nest(topic_ids: Mapping[str, str | None], partitions: Mapping[TopicPartition, Any]) -> dict[str, Any]:
    found = nested(partitions)
    return {
        topic: {"id": topic_id, "partitions": found.get(topic, {})} for topic, topic_id in sorted(topic_ids.items())
    }


def _flat(topics: Mapping[str, Any]) -> dict[TopicPartition, Any]:
    return unnested({topic: one["partitions"] for topic, one in topics.items()})


def _dump(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


def _load(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError("its brackets are nested too deep") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    if value["layout"] > LAYOUT:
        raise ValueError(f"{_layout(value)} knows {LAYOUT}: use the one that wrote it, or a newer one")
    return value


def _layout(value: Mapping[str, Any]) -> str:
    return f"its layout is {value['layout']}, of klog {value.get('klog', '(unknown)')}; this klog, {__version__},"


def _below(path: str) -> str:
    """A path of a manifest, which may not lead out of its folder, in any store."""
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{path!r} leads out of the export; bring the file back from a backup")
    return path


def _reason(error: Exception) -> str:
    return f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
