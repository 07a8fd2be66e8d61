"""The six ways in which rows are shown."""

from __future__ import annotations

from enum import StrEnum


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
