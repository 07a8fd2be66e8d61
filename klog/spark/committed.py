"""What an export has committed, as a DataFrame: exactly the files that its manifests list, or that its table has now.

Where batches are renamed into place, any reader of ``ROOT/data`` sees the same; where they are committed by their
manifests (object stores), what runs have written and never committed lies in ``data`` too.
"""

from __future__ import annotations

import json
import re
from typing import Any

from klog.errors import NoSuchThing
from klog.export.partitioning import NULL_FOLDER
from klog.export.root import ExportRoot
from klog.export.stores.store import Store
from klog.export.tables.commits import schema_of
from klog.spark.frames import format_class
from klog.spark.running import hadoop

hadoop.register_stores()


def read_export(spark: Any, root: str | Store) -> Any:
    """The messages of an export, from whatever it is in, and the column ``batch``, a bigint.

    ``root``: a path, a URL, or a store. What was undecodable is not among them (``_undecodable`` of each batch).
    For ``s3a:``, ``gs:``, ``abfs:`` Spark needs those file systems' jars and settings itself. A frame does not see what
    is committed after it was made.

    NoSuchThing where there is no export, or nothing was committed yet; Refused where a batch is missing, or rows of a
    table are deleted in a way that needs its own reader. ``batch`` is null where others have rewritten a table's files.
    """
    from pyspark.sql import functions as sql

    place = ExportRoot(root)
    format_, table = place.existing_identity().format, place.table
    files: list[str] = []
    decode, has_grown = None, False
    for batch in place.batches():
        manifest, _ = place.manifest(batch)
        has_grown |= bool(files) and manifest.decode != decode
        decode = manifest.decode
        shown = manifest.files if table is None else ()
        for file in shown:
            if not any(part.startswith("_") for part in file.path.split("/")):
                files.append(place.store.location(place.file_path(manifest, file.path)))
    if table is not None:
        files = [one if "://" in one or one[0] == "/" else place.store.location(one) for one in table.shown.files()]
    if not files:
        raise NoSuchThing(f"{place}: nothing was committed here yet")
    reader = spark.read
    # Where folders have values Spark would take their names for columns; files of a table lie anywhere in it.
    about = ("basePath", place.store.location("data")) if table is None else ("recursiveFileLookup", "true")
    reader = reader.option(*about)
    if table is not None or (decode is not None and has_grown):
        reader = _as_last_written(reader, format_, decode)
    frame = reader.format(format_class(format_)).load(files)
    # batch=0000000042-<run> is a text to Spark; the number is what all ways of committing have.
    path = sql.col("_metadata.file_path")
    if table is None:
        path = sql.concat(sql.lit("/data/"), sql.col("batch").cast("string"))
    frame = frame.withColumn("batch", sql.regexp_extract(path, r".*/data/(\d+)", 1).try_cast("bigint"))
    if table is None:
        return frame
    for name in table.folders:
        said = sql.regexp_extract(path, f"/{re.escape(name)}=([^/]+)/", 1)
        value = sql.when(~said.isin("", NULL_FOLDER), sql.url_decode(said))
        if name in frame.columns:  # which files have that klog has written, and others that the table's tools have not
            value = sql.coalesce(sql.col(name), value.try_cast(frame.schema[name].dataType))
        else:
            value = value.try_cast("date" if name == "dt" else "int")
        frame = frame.withColumn(name, value)
    return frame.where("offset is not null") if table.has_others else frame


def _as_last_written(reader: Any, format_: str, decode: dict[str, Any] | None) -> Any:
    """With the columns of the last batch, which has those of all before: Spark would take whichever file it opens."""
    columns = schema_of(decode)
    if format_ == "avro":
        from klog.export.files.avro_encoding import avro_schema

        return reader.option("avroSchema", json.dumps(avro_schema(columns)))
    if format_ == "json":
        return reader  # Spark looks at all lines
    from pyspark.sql.pandas.types import from_arrow_schema

    return reader.schema(from_arrow_schema(columns))
