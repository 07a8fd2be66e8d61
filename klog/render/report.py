"""What a command has to show: rows of one dataclass and what comes with them, in one of six formats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

ENVELOPE_VERSION = 1
"""``_version`` of the JSON envelope; grows when a key changes its meaning, not when one is added."""


class Format(StrEnum):
    """The value of ``-o/--output``."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    TSV = "tsv"
    SCHEMA = "schema"
    """The columns that the command has, without its rows: nothing is connected to."""

    @property
    def is_structured(self) -> bool:
        """Whether errors, too, are written as data (JSON or YAML) and not as sentences."""
        return self in (Format.JSON, Format.JSONL, Format.YAML)


@dataclass(frozen=True, slots=True)
class Report:
    """Rows and their type (so that an empty list still has its columns).

    ``rows`` may be an iterator, which is read once, and row by row where the format allows it.
    ``command`` is ``topic.list``; ``footer`` and ``hint`` are sentences for a person: they go to stderr, and only with
    tables. ``failed`` marks a command that found something wrong although no single row failed (exit 1). ``about`` is
    what the rows are about: it stands beside them in JSON and YAML. ``left_out``: heads of columns that a table had no
    room for, once it is written.
    """

    command: str
    row_type: type
    rows: Iterable[Any]
    footer: str | None = None
    failed: bool = False
    notes: tuple[str, ...] = field(default=())
    about: Mapping[str, Any] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
