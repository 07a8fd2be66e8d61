"""Messages that cannot be decoded, in a topic of their own: once, whatever is killed between a commit and that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from klog.errors import UnknownTopicOrPartition, UsageError
from klog.spark.decoding import Decode
from klog.streams import undecodable
from klog.streams.part_writer import PartWriter
from klog.streams.undecodable import UndecodableTopic
from tests.cli.runner import klog
from tests.spark import exporting
from tests.spark.conftest import Message, NewTopic, TopicOnBroker
from tests.spark.exporting import states
from tests.tools.copies import everything


def export(topic: TopicOnBroker, root: Path, **options: Any) -> None:
    exporting.export(topic, root, decode=Decode("json").plan, **options)


def bad(number: int) -> Message:
    return Message(b"key %d" % number, b"bad %d" % number, (("a", b"1"), ("a", None)))


GOOD = Message(b"k", b'{"a": 1}')


def read(topic: TopicOnBroker) -> list[tuple[int, bytes | None, bytes | None, dict[str, bytes | None]]]:
    """All messages: partition, key, value, klog's headers."""
    return [
        (partition, one.key, one.value, {name: value for name, value in one.headers if name.startswith("klog-")})
        for partition, rows in everything(topic.bootstrap, topic.name).items()
        for one in rows
    ]


def test_each_is_there_once_with_its_reason(new_topic: NewTopic, tmp_path: Path) -> None:
    topic, target = new_topic(3), new_topic(2)
    for partition in range(3):
        topic.produce([GOOD, bad(partition), Message(None, b"\xff", (), 1_700_000_000_000)], partition)
    root = tmp_path / "root"
    to = UndecodableTopic(topic.bootstrap, target.name, str(root), [topic.name])
    assert to.write() == 0
    export(topic, root)
    assert to.write() == 6
    assert to.write() == UndecodableTopic(topic.bootstrap, target.name, str(root), ()).write() == 0
    found = read(target)
    assert sorted((partition, key, value) for partition, key, value, _ in found if key) == [
        (0, b"key 0", b"bad 0"),
        (0, b"key 2", b"bad 2"),
        (1, b"key 1", b"bad 1"),
    ]
    assert sum(value == b"\xff" for _, _, value, _ in found) == 3
    for *_, headers in found:
        assert (headers["klog-error"] or b"").startswith(b"not JSON")
        assert (headers["klog-source"] or b"").startswith(b"%s-" % topic.name.encode())
    topic.produce([GOOD], 0)
    export(topic, root)
    assert to.write() == 0
    topic.produce([bad(9)], 0)
    export(topic, root)
    assert to.write() == 1
    assert len(read(target)) == 7
    assert set(states(root, topic)) == {"ok"}


def test_cut_off_anywhere_the_next_run_makes_it_good(
    new_topic: NewTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, target = new_topic(), new_topic()
    topic.produce([GOOD, *map(bad, range(20))])
    root = tmp_path / "root"
    export(topic, root)
    monkeypatch.setattr("klog.streams.part_writer.APPEND_BYTES", 300)  # some four messages each
    append, appends = PartWriter.append, 0

    def cut_off(self: PartWriter, *arguments: Any) -> None:
        nonlocal appends
        if appends == 2:
            raise KeyboardInterrupt
        appends += 1
        append(self, *arguments)

    monkeypatch.setattr(PartWriter, "append", cut_off)
    with pytest.raises(KeyboardInterrupt):
        UndecodableTopic(topic.bootstrap, target.name, str(root), ()).write()
    monkeypatch.setattr(PartWriter, "append", append)
    there = len(read(target))
    assert 0 < there < 20
    assert UndecodableTopic(topic.bootstrap, target.name, str(root), ()).write() == 20 - there
    assert [value for _, _, value, _ in read(target)] == [b"bad %d" % number for number in range(20)]


def test_what_cannot_be(new_topic: NewTopic, tmp_path: Path) -> None:
    topic, target = new_topic(), new_topic()
    topic.produce([GOOD, bad(1)])
    root = tmp_path / "root"
    with pytest.raises(UsageError):  # its messages would come back for ever
        UndecodableTopic(topic.bootstrap, topic.name, str(root), [topic.name])
    with pytest.raises(UnknownTopicOrPartition):
        UndecodableTopic(topic.bootstrap, "not-there", str(root), ())
    export(topic, root)
    with pytest.raises(UsageError):
        UndecodableTopic(topic.bootstrap, topic.name, str(root), ()).write()
    assert not (root / undecodable.FOLDER).exists()
    plain = tmp_path / "plain"
    with pytest.raises(UsageError) as caught:  # before the first run, which would not decode
        UndecodableTopic(topic.bootstrap, target.name, str(plain), (), decodes=False).write()
    assert "--decode" in (caught.value.hint or "")
    exporting.export(topic, plain)
    with pytest.raises(UsageError):
        UndecodableTopic(topic.bootstrap, target.name, str(plain), (), decodes=False).write()
    assert UndecodableTopic(topic.bootstrap, target.name, str(root), (), decodes=False).write() == 1


def test_by_the_command(new_topic: NewTopic, tmp_path: Path) -> None:
    topic, target = new_topic(), new_topic()
    topic.produce([GOOD, bad(1)])
    words = ("-B", topic.bootstrap, "-o", "json", "export", "run", topic.name, "--engine", "local")
    words += ("--decode", "json", "--undecodable-to")
    done = klog(*words, target.name, "--to", tmp_path / "root")
    assert done.code == 1, done.stderr  # none may be, if the first run does not say otherwise
    assert [(row["messages"], row["undecodable"]) for row in done.rows] == [(2, 1)]
    assert target.name in done.stderr and "--max-undecodable" in done.stderr
    assert [value for _, _, value, _ in read(target)] == [b"bad 1"]
    for verb in ("list", "status", "verify"):
        said = klog("-B", topic.bootstrap, "export", verb, tmp_path / "root")
        assert said.code == 0 and "not JSON" in said.stderr, said
        (pattern,) = [one for one in said.stderr.split() if one.endswith("_undecodable")]
        assert list(Path("/").glob(pattern[1:])), "where they can be read"
    topic.produce([bad(3)])
    quiet = klog(*words, target.name, "--to", tmp_path / "root", "-q")
    assert quiet.code == 1 and "--max-undecodable" in quiet.stderr, "-q silences no error"
    topic.produce([GOOD, bad(2)])
    accepted = klog(*words, target.name, "--to", tmp_path / "root", "--max-undecodable", "50%")
    assert accepted.code == 0 and [row["undecodable"] for row in accepted.rows] == [1], accepted
    refused = klog(*words, "not-there", "--to", tmp_path / "other")
    assert refused.code == 1
    assert "not-there" in refused.stderr and not (tmp_path / "other").exists()
