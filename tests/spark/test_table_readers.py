"""Tables of klog's as DuckDB's extensions and the formats' own readers of Spark read them, which share no code with the
libraries that klog writes by. They come from their registries once (110 and 550 MB), with a DuckDB and a Spark of their
version, and stay out of klog's own environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from bench.maven import TABLES_SPARK_VERSION, PeerMissing, cache_folder, table_jars
from klog.spark.decoding import Decode
from tests.spark.conftest import Message, NewTopic
from tests.spark.exporting import export

pytestmark = [
    pytest.mark.long("engines that are fetched; test_tables.py reads by the formats' own libraries"),
    pytest.mark.timeout(900),
]
FORMATS: Final = ("iceberg", "delta")
DUCKDB: Final = "1.5.5"
"""The newest whose extensions are packages."""

BY_DUCKDB: Final = """
import json, sys
import duckdb
from duckdb_extensions import import_extension
iceberg, delta, metadata = sys.argv[1:]
for name in ("avro", "iceberg", "delta"):
    import_extension(name)
    duckdb.load_extension(name)
for table in (f"iceberg_scan('{metadata}')", f"delta_scan('{delta}')"):
    print(json.dumps(duckdb.sql(f'SELECT "offset", page, "user", headers FROM {table}').fetchall()))
"""
BY_SPARK: Final = """
import json, sys
from pyspark.sql import SparkSession
iceberg, delta, metadata, jars = sys.argv[1:]
of_iceberg = {
    "": "org.apache.iceberg.spark.SparkCatalog",
    ".type": "jdbc",
    ".uri": f"jdbc:sqlite:{iceberg}/_klog/catalog.db",
    ".warehouse": iceberg,
}
of_delta = {
    "extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.jars", jars)
for name, value in of_iceberg.items():
    builder.config(f"spark.sql.catalog.klog{name}", value)
for name, value in of_delta.items():
    builder.config(f"spark.sql.{name}", value)
spark = builder.getOrCreate()
by_path = [spark.read.format(name).load(path) for name, path in (("iceberg", metadata), ("delta", delta))]
for table in (spark.table("klog.klog.iceberg"), *by_path):
    print(json.dumps(table.select("offset", "page", "user", "headers").collect()))
"""


def by_duckdb(*roots: str | Path) -> str:
    names = ["duckdb", "duckdb-extensions", *(f"duckdb-extension-{name}" for name in ("avro", *FORMATS))]
    return answers(installed("duckdb", DUCKDB, names), BY_DUCKDB, *roots)


def by_spark(*roots: str | Path) -> str:
    try:
        jars = table_jars()
    except PeerMissing as missing:
        pytest.skip(str(missing))
    return answers(installed("pyspark", TABLES_SPARK_VERSION, ["pyspark"]), BY_SPARK, *roots, ",".join(map(str, jars)))


@pytest.mark.parametrize("reader", [by_duckdb, by_spark])
def test_another_engine_reads_both(new_topic: NewTopic, tmp_path: Path, reader: Callable[..., str]) -> None:
    topic = new_topic()
    roots = [tmp_path / format for format in FORMATS]
    sent = topic.produce([Message(b"k", b'{"page": "a", "user": 1}'), Message(None, b'{"page": "b"}')])
    for format, root in zip(FORMATS, roots, strict=True):
        export(topic, root, format, decode=Decode("json").plan)
    sent += topic.produce([Message(None, b'{"page": "c", "user": 3}')])
    for root in roots:
        export(topic, root)
    newest = max((roots[0] / "metadata").glob("*.metadata.json"))
    read = [sorted(json.loads(line)) for line in reader(*roots, newest).splitlines()]
    assert len(read) >= len(FORMATS)
    for rows in read:
        assert rows == [[sent[0], "a", 1, []], [sent[1], "b", None, []], [sent[2], "c", 3, []]]


def answers(home: Path, program: str, *arguments: str | Path) -> str:
    """What the program prints, which imports from `home`."""
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        check=False,
        text=True,
        env=environment | {"PYTHONPATH": str(home)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def installed(name: str, version: str, packages: list[str]) -> Path:
    """The folder of these packages of one version."""
    home = cache_folder() / f"{name}-{version}"
    if not home.is_dir():
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", f"{home}.part"]
        if subprocess.run([*command, *(f"{one}=={version}" for one in packages)], check=False).returncode:
            pytest.skip(f"{name} {version} cannot be had")
        Path(f"{home}.part").rename(home)
    return home
