"""What an export has committed, as a DataFrame: exactly the files that its manifests list.

Where batches are renamed into place, any reader of ``ROOT/data`` sees the same; where they are committed by their
manifests (object stores), what runs have written and never committed lies in ``data`` too.
"""

from __future__ import annotations

import json
from typing import Any

from klog.errors import NoSuchThing
from klog.export.root import ExportRoot
from klog.export.stores.store import Store
from klog.spark.frames import AVRO
from klog.spark.running import hadoop

hadoop.register_stores()


def read_export(spark: Any, root: str | Store) -> Any:
    """The messages of an export, from whatever it is in, and the column ``batch``, a bigint.

    ``root``: a path, a URL, or a store. What was undecodable is not among them (``_undecodable`` of each batch).
    For ``s3a:``, ``gs:``, ``abfs:`` Spark needs those file systems' jars and settings itself. A frame does not see what
    is committed after it was made.

    NoSuchThing where there is no export, or nothing was committed yet; Refused where a batch is missing.
    """
    from pyspark.sql import functions as sql

    place = ExportRoot(root)
    format_ = place.existing_identity().format
    files: list[str] = []
    decode, has_grown = None, False
    for batch in place.batches():
        manifest, _ = place.manifest(batch)
        has_grown |= bool(files) and manifest.decode != decode
        decode = manifest.decode
        for file in manifest.files:
            if not any(part.startswith("_") for part in file.path.split("/")):
                files.append(place.store.location(place.file_path(manifest, file.path)))
    if not files:
        raise NoSuchThing(f"{place}: nothing was committed here yet")
    reader = spark.read.option("basePath", place.store.location("data"))
    if decode is not None and (decode.get("flat") or has_grown):
        reader = _as_last_written(reader, format_, decode)
    if format_ == "avro":
        frame = _avro(reader, files)
    else:
        frame = reader.format(format_).load(files)
    # batch=0000000042-<run> is a text to Spark; the number is what all ways of committing have.
    source = (
        sql.col("_metadata.file_path")
        if place.table
        else sql.concat(sql.lit("/data/"), sql.col("batch").cast("string"))
    )
    number = sql.regexp_extract(source, r".*/data/(\d+)", 1).cast("bigint")
    return frame.withColumn("batch", number)


def _as_last_written(reader: Any, format_: str, decode: dict[str, Any]) -> Any:
    """With the columns of the last batch, which has those of all before: Spark would take whichever file it opens."""
    from klog.export.message_columns import SCHEMA
    from klog.schemas.decoding.decoder import Decoding

    columns = Decoding.from_json(decode).typed_schema(SCHEMA)
    if format_ == "avro":
        from klog.export.files.avro_encoding import avro_schema

        return reader.option("avroSchema", json.dumps(avro_schema(columns)))
    if format_ == "json":
        return reader  # Spark looks at all lines
    from pyspark.sql.pandas.types import from_arrow_schema

    return reader.schema(from_arrow_schema(columns))


def _avro(reader: Any, files: list[str]) -> Any:
    from pyspark.errors import AnalysisException

    try:
        return reader.format(AVRO[0]).load(files)
    except AnalysisException:
        return reader.format(AVRO[1]).load(files)
