"""Tables of klog's as DuckDB's own extensions read them, which share no code with the libraries that klog writes by.
They come from the registry once (110 MB), with a DuckDB of their version, and stay out of klog's own environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from bench.maven import cache_folder
from klog.spark.export import Decode
from tests.spark.conftest import Message, TopicOnBroker
from tests.spark.test_tables import export

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
iceberg, delta = sys.argv[1:]
for name in ("avro", "iceberg", "delta"):
    import_extension(name)
    duckdb.load_extension(name)
for table in (f"iceberg_scan('{iceberg}')", f"delta_scan('{delta}')"):
    print(json.dumps(duckdb.sql(f'SELECT "offset", page, "user", headers FROM {table}').fetchall()))
"""


def test_duckdb_reads_both(new_topic: Callable[..., TopicOnBroker], tmp_path: Path) -> None:
    home = duckdb_home()
    topic = new_topic()
    roots = [tmp_path / format for format in FORMATS]
    sent = topic.produce([Message(b"k", b'{"page": "a", "user": 1}'), Message(None, b'{"page": "b"}')])
    for format, root in zip(FORMATS, roots, strict=True):
        export(topic, root, format, decode=Decode("json").plan)
    sent += topic.produce([Message(None, b'{"page": "c", "user": 3}')])
    for root in roots:
        export(topic, root)
    rows = [[sent[0], "a", 1, []], [sent[1], "b", None, []], [sent[2], "c", 3, []]]
    newest = max((roots[0] / "metadata").glob("*.metadata.json"))
    done = subprocess.run(
        [sys.executable, "-c", BY_DUCKDB, newest, roots[1]],
        capture_output=True,
        check=False,
        text=True,
        env=os.environ | {"PYTHONPATH": str(home)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert [sorted(json.loads(line)) for line in done.stdout.splitlines()] == [rows, rows]


def duckdb_home() -> Path:
    """The folder of DuckDB and its extensions."""
    home = cache_folder() / f"duckdb-{DUCKDB}"
    if not home.is_dir():
        names = ["duckdb", "duckdb-extensions", *(f"duckdb-extension-{name}" for name in ("avro", *FORMATS))]
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", f"{home}.part"]
        if subprocess.run([*command, *(f"{one}=={DUCKDB}" for one in names)], check=False).returncode:
            pytest.skip("DuckDB's extensions cannot be had")
        Path(f"{home}.part").rename(home)
    return home
