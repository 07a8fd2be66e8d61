"""The flags of ``klog export run`` that say how files look, and who writes them."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from klog.cli.complete import group_names
from klog.ops import units

FilesFormat = Annotated[
    Literal["parquet", "avro", "orc", "json"] | None,
    typer.Option("--format", metavar="FORMAT", help="parquet, avro, orc or json (lines); fixed by the first run."),
]
PartitionBy = Annotated[
    Literal["day", "hour"] | None,
    typer.Option(
        "--partition-by", metavar="UNIT", help="Folders by the messages' day or hour; fixed by the first run."
    ),
]
MaxFileBytes = Annotated[
    int | None,
    typer.Option("--max-file-bytes", metavar="SIZE", parser=units.parse_size, help="No file is much larger."),
]
WriterName = Annotated[
    Literal["direct", "spark"] | None,
    typer.Option("--writer", metavar="WHO", help="direct: the tasks that read; spark: Spark's writers, to any store."),
]
Decode = Annotated[
    str | None,
    typer.Option(
        "--decode", metavar="avro[:key]", help="Values (or keys) as typed columns, by schema; fixed by the first run."
    ),
]
ReadAs = Annotated[
    str | None,
    typer.Option("--read-as", metavar="SCHEMA", help="The schema to decode as, an id or a file; else the newest."),
]
KeepBytes = Annotated[bool, typer.Option("--keep-bytes", help="Beside what was decoded.")]
Checksum = Annotated[
    bool, typer.Option("--checksum", help="Checksums of the messages in the manifest, for `klog export verify`.")
]
GroupFlag = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="GROUP",
        help="After the commit, also commit the offsets for this group, to be seen where lag is watched.",
        autocompletion=group_names,
    ),
]
SparkJson = Annotated[
    bool, typer.Option("--spark-json", help="With --dry-run: the ranges as Spark's options have them.")
]
