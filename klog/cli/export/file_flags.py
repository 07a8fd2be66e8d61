"""The flags of ``klog export run`` that say how files look, and who writes them."""

from __future__ import annotations

from typing import Annotated, Literal

from klog.cli.flags import flag
from klog.config import units

FilesFormat = Annotated[
    Literal["parquet", "avro", "orc", "json"] | None,
    flag("--format FORMAT", "parquet, avro, orc or json (lines); fixed by the first run."),
]
PartitionBy = Annotated[
    str | None, flag("--partition-by HOW", "Divide files by day, hour or COLUMN; fixed by the first run.")
]
MaxFileBytes = Annotated[
    int | None, flag("--max-file-bytes SIZE", "Approximate largest size of a file.", parser=units.parse_size)
]
WriterName = Annotated[
    Literal["direct", "spark"] | None,
    flag("--writer WHO", "direct: the reading tasks write; spark: Spark's writers, for any store."),
]
Engine = Annotated[
    Literal["spark", "local"], flag("--engine WHO", "Who runs the tasks: spark, or local, processes of this machine.")
]
Decode = Annotated[
    str | None,
    flag("--decode avro|json|protobuf[:key]", "Decode values (or keys) into typed columns; fixed by the first run."),
]
ReadAs = Annotated[
    str | None,
    flag(
        "--read-as SCHEMA",
        "Reader schema of Avro, an id or a file; if not given the newest, or for JSON one inferred from messages. "
        "For protobuf FILE or FILE#MESSAGE: descriptors of protoc.",
    ),
]
KeepBytes = Annotated[bool, flag("--keep-bytes", "Keep the original bytes beside the decoded columns.")]
UndecodableTo = Annotated[
    str | None,
    flag(
        "--undecodable-to TOPIC",
        "Also write messages that cannot be decoded to this topic, with the reason; give it to each run.",
    ),
]
MaxUndecodable = Annotated[
    str | None,
    flag(
        "--max-undecodable N|P%",
        "Exit code 1 if more messages of a run cannot be decoded; if not given, what the first run had, else 0.",
    ),
]
Checksum = Annotated[
    bool, flag("--checksum", "Write checksums of the messages into the manifest, for `klog export verify`.")
]
GroupFlag = Annotated[
    str | None, flag("--group GROUP", "Also commit the exported offsets for this group, for lag monitoring.")
]
SparkJson = Annotated[bool, flag("--spark-json", "With --dry-run: print the ranges as Spark options.")]
