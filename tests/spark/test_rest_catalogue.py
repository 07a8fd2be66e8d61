"""Iceberg tables by a REST catalogue, the one that Iceberg tests its own clients against."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from bench.maven import PeerMissing, rest_catalogue_lib
from klog.errors import StorageError
from klog.export.gc import find_garbage
from klog.export.root import ExportRoot
from klog.export.rows import ExportedRange
from klog.export.run import TableChoice, run
from klog.export.verify import verify
from klog.spark.export import LocalWriter
from tests.spark.conftest import TopicOnBroker, make_messages
from tests.spark.killed_export import Kill, kill_each

pytestmark = [
    pytest.mark.long("a server that is fetched; test_tables.py has the same by SQLite"),
    pytest.mark.xdist_group("rest-catalogue"),
]
NewTopic = Callable[..., TopicOnBroker]


class Place:
    """A table's root, and the catalogue with its folder."""

    def __init__(self, folder: Path, root: Path, url: str) -> None:
        self.folder = folder
        self.root = str(root)
        self.url = url
        self.table = TableChoice("iceberg", f"web.{root.parent.name}", url)

    def export(self, topic: TopicOnBroker, **options: Any) -> list[ExportedRange]:
        chosen = None if ExportRoot(self.root).batches() else self.table
        return run(topic.bootstrap, [topic.name], self.root, LocalWriter(), table=chosen, **options)

    def offsets(self) -> list[int]:
        """Of all rows, as pyiceberg finds them by the catalogue alone."""
        from pyiceberg.catalog import load_catalog

        assert self.table.name is not None
        table = load_catalog("there", uri=self.url, type="rest").load_table(self.table.name)
        return sorted(table.scan().to_arrow()["offset"].to_pylist())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
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
def place(server: tuple[Path, str], tmp_path: Path) -> Place:
    return Place(server[0], tmp_path / "root", server[1])


def test_runs_add_and_one_of_two_adds_a_batch(place: Place, new_topic: NewTopic) -> None:
    topic = new_topic()
    sent = topic.produce(make_messages(40))

    def overtake(step: str) -> None:
        if step == "written" and not ExportRoot(place.root).batches():
            place.export(topic)

    assert place.export(topic, on_step=overtake) == []
    assert place.offsets() == sent
    sent += topic.produce(make_messages(10))
    assert [row.messages for row in place.export(topic)] == [10]
    assert place.offsets() == sent
    assert {row.state for row in verify(topic.bootstrap, place.root)} == {"ok"}


@pytest.mark.parametrize("step", ["flushed", "committed"])
def test_a_killed_run_leaves_all_of_a_batch_or_nothing(place: Place, new_topic: NewTopic, step: str) -> None:
    topic = new_topic()
    sent = topic.produce(make_messages(60))
    place.export(topic)
    sent += topic.produce(make_messages(15))
    assert kill_each(topic.bootstrap, {step: Kill(topic.name, place.root, step)}) == {step: True}
    assert len(place.offsets()) == (75 if step == "committed" else 60)
    sent += topic.produce(make_messages(5))
    place.export(topic)
    assert place.offsets() == sent
    assert {row.state for row in verify(topic.bootstrap, place.root)} == {"ok"}


def test_a_commit_whose_answer_is_lost_counts_once(place: Place, new_topic: NewTopic) -> None:
    topic = new_topic()
    sent = topic.produce(make_messages(20))
    place.export(topic)
    sent += topic.produce(make_messages(7))

    def lose(step: str) -> None:
        if step == "flushed":
            (place.folder / "lose-answer").touch()

    with pytest.raises(StorageError, match="cannot"):
        place.export(topic, on_step=lose)
    assert place.offsets() == sent, "the catalogue has taken it"
    assert place.export(topic) == []
    assert place.offsets() == sent
    assert {row.state for row in verify(topic.bootstrap, place.root)} == {"ok"}
    assert find_garbage(place.root, older_than_s=0) == []
