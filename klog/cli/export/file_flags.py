"""The flags of ``klog export run`` that say how files look, and who writes them."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from klog.cli.name_cache import group_names, topic_names
from klog.config import units

FilesFormat = Annotated[
    Literal["parquet", "avro", "orc", "json"] | None,
    typer.Option("--format", metavar="FORMAT", help="parquet, avro, orc or json (lines); fixed by the first run."),
]
PartitionBy = Annotated[
    str | None,
    typer.Option("--partition-by", metavar="HOW", help="Divide files by day, hour or COLUMN; fixed by the first run."),
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
Engine = Annotated[
    Literal["spark", "local"],
    typer.Option("--engine", metavar="WHO", help="Who runs the tasks: spark, or local, processes of this machine."),
]
Decode = Annotated[
    str | None,
    typer.Option(
        "--decode",
        metavar="avro|json|protobuf[:key]",
        help="Decode values (or keys) into typed columns; fixed by the first run.",
    ),
]
ReadAs = Annotated[
    str | None,
    typer.Option(
        "--read-as",
        metavar="SCHEMA",
        help="Reader schema of Avro, an id or a file; if not given the newest, or for JSON one inferred from messages. "
        "For protobuf FILE or FILE#MESSAGE: descriptors of protoc.",
    ),
]
KeepBytes = Annotated[bool, typer.Option("--keep-bytes", help="Keep the original bytes beside the decoded columns.")]
UndecodableTo = Annotated[
    str | None,
    typer.Option(
        "--undecodable-to",
        metavar="TOPIC",
        help="Also write messages that cannot be decoded to this topic, with the reason; give it to each run.",
        autocompletion=topic_names,
    ),
]
MaxUndecodable = Annotated[
    str | None,
    typer.Option(
        "--max-undecodable",
        metavar="N|P%",
        help="Exit code 1 if more messages of a run cannot be decoded; if not given, what the first run had, else 0.",
    ),
]
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
