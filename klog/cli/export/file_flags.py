"""The flags of ``klog export run`` that say how files look, and who writes them."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from klog.cli.name_cache import group_names
from klog.config import units

FilesFormat = Annotated[
    Literal["parquet", "avro", "orc", "json"] | None,
    typer.Option("--format", metavar="FORMAT", help="parquet, avro, orc or json (lines); fixed by the first run."),
]
PartitionBy = Annotated[
    Literal["day", "hour"] | None,
    typer.Option(
        "--partition-by", metavar="UNIT", help="One folder per day or hour of the messages; fixed by the first run."
    ),
]
MaxFileBytes = Annotated[
    int | None,
    typer.Option(
        "--max-file-bytes", metavar="SIZE", parser=units.parse_size, help="Approximate largest size of a file."
    ),
]
WriterName = Annotated[
    Literal["direct", "spark"] | None,
    typer.Option(
        "--writer", metavar="WHO", help="direct: the reading tasks write; spark: Spark's writers, for any store."
    ),
]
Decode = Annotated[
    str | None,
    typer.Option(
        "--decode", metavar="avro[:key]", help="Decode values (or keys) into typed columns; fixed by the first run."
    ),
]
ReadAs = Annotated[
    str | None,
    typer.Option("--read-as", metavar="SCHEMA", help="Reader schema, an id or a file; the newest if not given."),
]
KeepBytes = Annotated[bool, typer.Option("--keep-bytes", help="Keep the original bytes beside the decoded columns.")]
Checksum = Annotated[
    bool,
    typer.Option("--checksum", help="Write checksums of the messages into the manifest, for `klog export verify`."),
]
GroupFlag = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="GROUP",
        help="Also commit the exported offsets for this group, for lag monitoring.",
        autocompletion=group_names,
    ),
]
SparkJson = Annotated[bool, typer.Option("--spark-json", help="With --dry-run: print the ranges as Spark options.")]
