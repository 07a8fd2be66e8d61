"""Messages as Spark's own writers write them, in the same columns and folders as klog's do.

Spark's JSON has no bytes, so a message is put there as `klog tail --output jsonl` does: as text where it is UTF-8, as
base64 where it is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from klog.errors import UsageError
from klog.export.batch_writer import FileLayout, WriteJob
from klog.export.files.json_values import DAY_MAX, DAY_MIN
from klog.export.files.orc import TIMESTAMP_US_MAX
from klog.export.partitioning import TIMES
from klog.export.stores.store import Store

AVRO = "org.apache.spark.sql.avro.AvroFileFormat"
"""In Spark itself; the name ``avro`` needs a package that Spark's wheel does not have."""

COMPRESSION = {"parquet": "zstd", "orc": "zstd", "avro": "snappy", "json": "gzip"}

DAY_US = 86_400_000_000
HOUR_US = 3_600_000_000


def write_frame(frame: Any, job: WriteJob) -> None:
    """A frame of messages with headers, as the files of the job."""
    layout = job.layout
    frame = _with_empty_headers(frame)
    frame, folders = _with_folders(frame, layout)
    if layout.format == "orc":
        frame = _within_orcs_years(frame)
    if layout.format == "json":
        frame = _as_json(frame, folders)
    writer = frame.write.mode("append").option("compression", COMPRESSION[layout.format]).partitionBy(*folders)
    if layout.format == "json":
        writer = writer.option("ignoreNullFields", "false")
    records = _records_a_file(job)
    if records is not None:
        writer = writer.option("maxRecordsPerFile", str(records))
    save(writer, layout.format, frame.sparkSession, job.store, job.folder)


def save(writer: Any, format: str, session: Any, store: Store, folder: str) -> None:
    """What a DataFrameWriter writes as files of a folder, and nothing of Spark's own beside them."""
    with _readable_times(session):
        writer.format(format_class(format)).save(store.location(folder))
    for stored in store.walk(folder):
        if stored.path.rpartition("/")[2].startswith(("_", ".")):
            store.remove(stored.path)  # Spark's marks and sums


def format_class(name: str) -> str:
    """What Spark knows a format of files by."""
    return AVRO if name == "avro" else name


def _with_empty_headers(frame: Any) -> Any:
    """Without headers an empty list, as in the files that tasks write; queries have null there."""
    from pyspark.sql import functions as sql

    none = sql.array().cast(frame.schema["headers"].dataType)
    return frame.withColumn("headers", sql.coalesce(sql.col("headers"), none))


@contextmanager
def _readable_times(session: Any) -> Iterator[None]:
    """Times in Parquet as everybody reads them, also where a session was started for older readers."""
    name = "spark.sql.parquet.outputTimestampType"
    before = session.conf.get(name)
    session.conf.set(name, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        session.conf.set(name, before)


def _records_a_file(job: WriteJob) -> int | None:
    """So many that their bytes in the log are what a file may have; files are compressed, so that they are smaller."""
    if job.layout.max_file_bytes is None or not job.messages:
        return None
    log_bytes = sum(one.to_offset - one.from_offset for one in job.ranges)
    return max(1, job.layout.max_file_bytes * job.messages // log_bytes)


def check_division(partition_by: str | None) -> None:
    """UsageError where Spark's own writers cannot divide rows like that."""
    if partition_by not in (None, *TIMES):
        raise UsageError("Spark's own writers divide by time alone", hint="--writer direct")


def _with_folders(frame: Any, layout: FileLayout) -> tuple[Any, list[str]]:
    """With the columns that become folders. By arithmetic: a session's time zone must not matter."""
    from pyspark.sql import functions as sql

    check_division(layout.partition_by)
    if layout.partition_by is None:
        return frame, []
    micros = sql.unix_micros("timestamp")

    def whole(unit_us: int) -> Any:
        return ((micros - sql.pmod(micros, sql.lit(unit_us))) / sql.lit(unit_us)).cast("bigint")

    days = whole(DAY_US)
    frame = frame.withColumn("dt", sql.when(_has_date(days), sql.date_from_unix_date(days.cast("int"))))
    if layout.partition_by == "day":
        return frame, ["dt"]
    hours = sql.pmod(whole(HOUR_US), sql.lit(24)).cast("string")
    return frame.withColumn("hour", sql.lpad(hours, 2, "0")), ["dt", "hour"]


def _has_date(days: Any) -> Any:
    """Whether so many days since 1970 are a date that all readers have."""
    return days.between(DAY_MIN, DAY_MAX)


def _within_orcs_years(frame: Any) -> Any:
    """With times that ORC's readers have, as files of tasks."""
    from pyspark.sql import functions as sql

    bounds = sql.lit(-TIMESTAMP_US_MAX), sql.lit(TIMESTAMP_US_MAX)
    micros = sql.greatest(sql.least(sql.unix_micros("timestamp"), bounds[1]), bounds[0])
    return frame.withColumn("timestamp", sql.timestamp_micros(micros))


def _as_json(frame: Any, folders: list[str]) -> Any:
    from pyspark.sql import functions as sql

    micros = sql.unix_micros("timestamp")
    time = sql.when(
        micros.between(DAY_MIN * DAY_US, (DAY_MAX + 1) * DAY_US - 1),
        sql.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"),
    ).otherwise(sql.unix_millis("timestamp").cast("string"))

    def encoding(content: Any) -> Any:
        is_text = sql.is_valid_utf8(content.cast("string"))
        return sql.when(content.isNull(), None).when(is_text, "utf-8").otherwise("base64")

    def text(content: Any) -> Any:
        return sql.when(encoding(content) == "utf-8", content.cast("string")).otherwise(
            sql.regexp_replace(sql.base64(content), "\\s", "")  # Spark may break it into lines
        )

    headers = sql.transform(
        "headers",
        lambda one: sql.struct(
            one["key"].alias("key"), text(one["value"]).alias("value"), encoding(one["value"]).alias("encoding")
        ),
    )
    key, value = sql.col("key"), sql.col("value")
    return frame.select(
        "topic",
        "partition",
        "offset",
        time.alias("timestamp"),
        text(key).alias("key"),
        text(value).alias("value"),
        headers.alias("headers"),
        encoding(key).alias("key_encoding"),
        encoding(value).alias("value_encoding"),
        "timestampType",
        *folders,
    )
