"""Tables in an object store: whole after kills and doubled runs, read by the formats' own libraries there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable

from klog.errors import UsageError
from klog.export.gc import find_garbage
from klog.export.root import ExportRoot
from klog.export.rows import ExportedRange
from klog.export.run import TableChoice, run
from klog.export.status import status
from klog.export.verify import verify
from klog.spark.export import LocalWriter
from tests.spark import s3_server
from tests.spark.conftest import TopicOnBroker, make_messages
from tests.spark.killed_export import Kill, kill_each
from tests.spark.s3_server import BUCKET

NewTopic = Callable[..., TopicOnBroker]
FORMATS = ("iceberg", "delta")

pytestmark = [
    pytest.mark.long("a second store of tables; exports to S3 are in test_store_export.py"),
    pytest.mark.slow,
    pytest.mark.xdist_group("tables-on-s3"),
]


class Place:
    """A table's root in the bucket, and the catalogue of an Iceberg table."""

    def __init__(self, endpoint: str, folder: Path, table: str) -> None:
        self.endpoint = endpoint
        self.table = table
        self.url = f"s3://{BUCKET}/{folder.name}"
        self.catalog = f"sqlite:///{folder}/catalog.db" if table == "iceberg" else None

    @property
    def choice(self) -> TableChoice:
        return TableChoice(self.table, "klog.clicks" if self.table == "iceberg" else None, self.catalog)

    def export(self, topic: TopicOnBroker, **options: Any) -> list[ExportedRange]:
        chosen = None if ExportRoot(self.url).batches() else self.choice
        return run(topic.bootstrap, [topic.name], self.url, LocalWriter(), table=chosen, **options)

    def iceberg(self) -> Any:
        from pyiceberg.catalog import load_catalog

        access = {"s3.endpoint": self.endpoint, "s3.access-key-id": "k", "s3.secret-access-key": "s"}
        return load_catalog("klog", uri=self.catalog, type="sql", **access).load_table("klog.clicks")

    def rows(self) -> list[dict[str, Any]]:
        """As the format's own library reads it."""
        if self.table == "delta":
            options = {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": "true"}
            found = DeltaTable(self.url, storage_options=options).to_pyarrow_table()
        else:
            found = self.iceberg().scan().to_arrow()
        return sorted(found.to_pylist(), key=lambda row: (row["partition"], row["offset"]))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    process, url = s3_server.start()
    with process:
        yield url
        process.communicate()


@pytest.fixture
def endpoint(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    names = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")
    for name, value in zip(names, (server, "k", "s", "us-east-1"), strict=True):
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture(params=["iceberg", "delta"])
def place(request: pytest.FixtureRequest, endpoint: str, tmp_path: Path) -> Place:
    return Place(endpoint, tmp_path, request.param)


def test_runs_add_to_a_table(place: Place, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    sent = topic.produce(make_messages(100), 0)
    sent += topic.produce(make_messages(30), 1)
    assert [row.messages for row in place.export(topic)] == [100, 30]
    assert place.export(topic) == []
    more = topic.produce(make_messages(20), 0)
    assert [row.messages for row in place.export(topic)] == [20]
    assert [row["offset"] for row in place.rows()] == [*sent[:100], *more, *sent[100:]]
    assert {row.state for row in verify(topic.bootstrap, place.url)} == {"ok"}
    assert {row.lag for row in status(topic.bootstrap, place.url)} == {0}
    assert find_garbage(place.url, older_than_s=0) == []


def test_one_of_two_runs_adds_a_batch(place: Place, new_topic: NewTopic) -> None:
    topic = new_topic()
    sent = topic.produce(make_messages(40))

    def overtake(step: str) -> None:
        if step == "written" and not ExportRoot(place.url).batches():
            place.export(topic)

    assert place.export(topic, on_step=overtake) == []
    assert [row["offset"] for row in place.rows()] == sent
    assert {row.state for row in verify(topic.bootstrap, place.url)} == {"ok"}


@pytest.mark.parametrize("step", ["flushed", "committed"])
def test_a_killed_run_leaves_all_of_a_batch_or_nothing(place: Place, new_topic: NewTopic, step: str) -> None:
    topic = new_topic()
    sent = topic.produce(make_messages(60))
    place.export(topic)
    sent += topic.produce(make_messages(15))
    assert kill_each(topic.bootstrap, {step: Kill(topic.name, place.url, step)}) == {step: True}
    assert len(place.rows()) == (75 if step == "committed" else 60)
    sent += topic.produce(make_messages(5))
    place.export(topic)
    assert [row["offset"] for row in place.rows()] == sent
    assert {row.state for row in verify(topic.bootstrap, place.url)} == {"ok"}


def test_polars_reads_it(place: Place, new_topic: NewTopic) -> None:
    topic = new_topic()
    sent = topic.produce(make_messages(50))
    place.export(topic)
    if place.table == "delta":
        options = {"AWS_ENDPOINT_URL": place.endpoint, "AWS_ALLOW_HTTP": "true", **credentials()}
        lazy = pl.scan_delta(place.url, storage_options=options)
    else:
        lazy = pl.scan_iceberg(place.iceberg(), reader_override="pyiceberg")
    assert sorted(lazy.collect()["offset"].to_list()) == sent


def test_an_iceberg_table_there_needs_a_catalogue(endpoint: str, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    topic.produce(make_messages(1))
    with pytest.raises(UsageError, match="catalogue"):
        choice = TableChoice("iceberg")
        run(topic.bootstrap, [topic.name], f"s3://{BUCKET}/{tmp_path.name}", LocalWriter(), table=choice)


def credentials() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
