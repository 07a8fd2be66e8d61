"""Tables in an object store, and by a REST catalogue (the one that Iceberg tests its own clients against): whole after
kills and doubled runs, read by the formats' own libraries there."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pyspark
import pytest
from deltalake import DeltaTable

from bench.maven import PeerMissing, rest_catalogue_lib
from klog.errors import StorageError, UsageError
from klog.export.gc import find_garbage
from klog.export.root import ExportRoot
from klog.export.rows import ExportedRange
from klog.export.run import TableChoice, run
from klog.export.status import status
from klog.export.verify import verify
from klog.spark.export import LocalWriter
from tests.spark import s3_server
from tests.spark.conftest import NewTopic, TopicOnBroker, make_messages
from tests.spark.exporting import when
from tests.spark.s3_server import BUCKET

pytestmark = [
    pytest.mark.long("other places of tables; test_tables.py has the same on this disk, by SQLite"),
    pytest.mark.slow,
    pytest.mark.xdist_group("tables-elsewhere"),
]


class Place(NamedTuple):
    """A table's root, and how others open the table."""

    root: str
    choice: TableChoice
    access: dict[str, str]
    """What the format's own library needs to know besides."""

    def export(self, topic: TopicOnBroker, **options: Any) -> list[ExportedRange]:
        chosen = None if ExportRoot(self.root).batches() else self.choice
        return run(topic.bootstrap, [topic.name], self.root, LocalWriter(), table=chosen, **options)

    def iceberg(self) -> Any:
        from pyiceberg.catalog import load_catalog

        return load_catalog("klog", uri=self.choice.catalog, **self.access).load_table(str(self.choice.name))

    def offsets(self) -> list[int]:
        """Of all rows, as the format's own library reads them."""
        if self.choice.format == "delta":
            found = DeltaTable(self.root, storage_options=self.access).to_pyarrow_table()
        else:
            found = self.iceberg().scan().to_arrow()
        return [row["offset"] for row in sorted(found.to_pylist(), key=lambda row: (row["partition"], row["offset"]))]


# --- Places ---


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    process, url = s3_server.start()
    with process:
        yield url
        process.communicate()


@pytest.fixture
def endpoint(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in s3_server.settings(server).items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A REST catalogue's folder, and its URL."""
    try:
        lib = rest_catalogue_lib()
    except PeerMissing as missing:
        pytest.skip(str(missing))
    folder = tmp_path_factory.mktemp("rest")
    hadoop = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")
    words = ["java", "-Xmx256m", "-cp", ":".join([f"{lib}/*", *map(str, hadoop)])]
    program = Path(__file__).with_name("RestCatalogue.java")
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [*words, str(program), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port, (folder / "log").read_text()[-3000:]
        yield folder, f"http://127.0.0.1:{port}"
        process.communicate()


@pytest.fixture
def by_rest(catalogue: tuple[Path, str], tmp_path: Path) -> Place:
    choice = TableChoice("iceberg", f"web.{tmp_path.name}", catalogue[1])
    return Place(str(tmp_path / "root"), choice, {"type": "rest"})


@pytest.fixture(params=["delta on S3", "iceberg on S3", "iceberg by REST"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "iceberg by REST":
        rest: Place = request.getfixturevalue("by_rest")
        return rest
    endpoint = request.getfixturevalue("endpoint")
    root = f"s3://{BUCKET}/{tmp_path.name}"
    if request.param == "delta on S3":
        return Place(root, TableChoice("delta"), {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"})
    access = {"type": "sql", "s3.endpoint": endpoint, "s3.access-key-id": "k", "s3.secret-access-key": "s"}
    return Place(root, TableChoice("iceberg", "klog.clicks", f"sqlite:///{tmp_path}/catalog.db"), access)


# --- Tests ---


def test_runs_add_to_a_table(place: Place, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    sent = topic.produce(make_messages(100), 0)
    sent += topic.produce(make_messages(30), 1)
    assert [row.messages for row in place.export(topic)] == [100, 30]
    assert place.export(topic) == []
    more = topic.produce(make_messages(20), 0)
    assert [row.messages for row in place.export(topic)] == [20]
    assert place.offsets() == [*sent[:100], *more, *sent[100:]]
    assert {row.state for row in verify(topic.bootstrap, place.root)} == {"ok"}
    assert {row.lag for row in status(topic.bootstrap, place.root)} == {0}
    assert find_garbage(place.root, older_than_s=0) == []
    if place.choice.format == "delta":
        secrets = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        lazy = pl.scan_delta(place.root, storage_options={**place.access, **secrets})
    else:
        lazy = pl.scan_iceberg(place.iceberg(), reader_override="pyiceberg")
    assert sorted(lazy.collect()["offset"].to_list()) == sorted(sent + more)


def test_a_commit_whose_answer_is_lost_counts_once(
    by_rest: Place, catalogue: tuple[Path, str], new_topic: NewTopic
) -> None:
    topic = new_topic()
    sent = topic.produce(make_messages(20))
    by_rest.export(topic)
    sent += topic.produce(make_messages(7))
    with pytest.raises(StorageError, match="cannot"):
        by_rest.export(topic, on_step=when("flushed", (catalogue[0] / "lose-answer").touch))
    assert by_rest.offsets() == sent, "the catalogue has taken it"
    assert by_rest.export(topic) == []
    assert by_rest.offsets() == sent
    assert {row.state for row in verify(topic.bootstrap, by_rest.root)} == {"ok"}
    assert find_garbage(by_rest.root, older_than_s=0) == []


def test_an_iceberg_table_there_needs_a_catalogue(endpoint: str, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    topic.produce(make_messages(1))
    with pytest.raises(UsageError, match="catalogue"):
        choice = TableChoice("iceberg")
        run(topic.bootstrap, [topic.name], f"s3://{BUCKET}/{tmp_path.name}", LocalWriter(), table=choice)
