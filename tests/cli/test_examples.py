"""Every command has an example, and each example is run as it stands.

`clicks`, `orders`, `billing` and the files are made for it. What would not end, or needs another machine, is parsed by
its command.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from klog.cli.command import KlogCommand
from klog.cli.examples import TEXT, examples_of
from klog.cli.root import walk
from klog.coordination.zookeeper import ZooKeeper
from klog.names import TopicPartition
from tests.admin.group_registry import commit
from tests.broker_fixture import RunningBroker
from tests.cli.runner import klog
from tests.tools.verbs import make_topic, send

COMMANDS = dict(walk())
LINES = [line.partition("  # ")[0] for line in TEXT.strip().splitlines()]
PARSED = {
    *("up", "down", "top", "shell", "mirror", "broker start", "broker stop", "broker restart"),
    *("zookeeper start", "zookeeper status", "zookeeper stop", "zk watch", "schema serve", "perf latency"),
    *("export run", "export status", "export verify", "export list", "export compact", "export gc", "export report"),
    *("export submit", "registry rebuild", "lost show", "lost replay"),
}
PARSED_LINES = {"klog tail clicks"}
CODES = {"check": {0, 1, 2}, "zk diff": {1}, "why": {0, 1}, "partition list": {0, 1}, "audit report": {0, 1}}
"""What an example may end with besides 0: the broker is shared with other tests."""


def words_of(line: str) -> tuple[str, ...]:
    words = tuple(shlex.split(line)[1:3])
    return next(one for one in (words, words[:1]) if one in COMMANDS)


def test_every_command_has_one_and_says_what_it_is_for() -> None:
    assert [words for words in COMMANDS if not examples_of(words)] == []
    assert sum(len(examples_of(words)) for words in COMMANDS) == len(LINES)
    for line in TEXT.strip().splitlines():
        assert re.fullmatch(r"klog \S.*  # [A-Z].*\.", line), line


@pytest.mark.parametrize("line", [one for one in LINES if " ".join(words_of(one)) in PARSED or one in PARSED_LINES])
def test_an_example_is_parsed(line: str) -> None:
    words = words_of(line)
    command: KlogCommand = COMMANDS[words]
    command.make_context(words[-1], shlex.split(line)[1 + len(words) :], obj=None).close()


class Place:
    """What the examples speak of, under names of its own, and the working folder with their files."""

    def __init__(self, broker: RunningBroker, folder: Path) -> None:
        self.folder = folder
        mark = uuid4().hex[:8]
        self.names = {
            name: f"{name}-{mark}" for name in ("clicks", "orders", "billing", "accounts", "views", "deleted")
        }
        self.names |= {name: f"/{name[1:]}-{mark}" for name in ("/mine", "/note")}
        clicks, orders, billing = (self.names[name] for name in ("clicks", "orders", "billing"))
        make_topic(broker.bootstrap, clicks, 2)
        make_topic(broker.bootstrap, orders, 2)
        send(broker.bootstrap, clicks, b"".join(b"%d\n" % number for number in range(20)), partition=0)
        with ZooKeeper(broker.zookeeper) as session:
            session.start()
            commit(session, billing, {TopicPartition(clicks, 0): 5})
        partition = {"topic": clicks, "partition": 0, "replicas": [broker.broker_id]}
        lines = ["a:1", "b:2"]
        files = {
            "messages.txt": "\n".join(lines),
            "messages.jsonl": '{"key": "a", "value": "1"}\n',
            "plan.json": json.dumps({"version": 1, "partitions": [partition]}),
            "offsets.json": klog("offset", "export", billing, "--format", "json", "-B", broker.bootstrap).stdout,
            "clicks.avsc": '{"type": "record", "name": "click", "fields": [{"name": "at", "type": "long"}]}',
            "state-change.log": '{"ts": "2026-02-01T10:00:01Z", "broker": 1, "kind": "broker-up", "id": 1}\n',
        }
        for name, text in files.items():
            (folder / name).write_text(text)
        (source,) = broker.folder.rglob(f"{clicks}-0")
        shutil.copytree(source, folder / "data" / f"{clicks}-0")

    def words(self, line: str) -> list[str]:
        """The command line with its own names."""
        text = line
        for name, own in self.names.items():
            text = re.sub(rf"(?<![\w.-]){name}(?![\w.])", own, text)
        return shlex.split(text)[1:]


@pytest.fixture
def place(broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("KLOG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    yield Place(broker, tmp_path)


def prepare(place: Place, broker: RunningBroker, line: str) -> list[str]:
    """What must be there before; the words to run."""
    words, at = place.words(line), ["-B", broker.bootstrap]
    if "ACT" in words:
        assert klog("topic", "config", place.names["clicks"], "retention.ms=5d", "-y", *at).code == 0
        act = klog("acts", "list", "--topic", place.names["clicks"], "-o", "json", *at).rows[-1]["act"]
        words = [act if word == "ACT" else word for word in words]
    if words[:2] == ["topic", "restore"]:
        make_topic(broker.bootstrap, place.names["deleted"], 1)
        assert klog("topic", "delete", place.names["deleted"], "-y", *at).code == 0
    if words[:2] == ["topic", "config"] and "--delete" in words:
        assert klog("topic", "config", place.names["clicks"], "retention.ms=5d", "-y", *at).code == 0
    if words[:2] == ["zk", "set"] or words[:2] == ["zk", "rm"]:
        assert klog("zk", "create", place.names["/note"], "old", "-y", *at).code == 0
    if words[:2] == ["reassign", "plan"]:
        Path("plan.json").unlink()
    if words[:1] == ["schema"] and words[1] in ("get", "check", "delete", "level"):
        subject = f"{place.names['clicks']}-value"
        assert klog("schema", "register", subject, "clicks.avsc", *at).code == 0
    if words[:1] == ["profile"] and words[1] != "add":
        for name in ("prod", "local"):
            assert klog("profile", "add", name, *at).code == 0
    return words


@pytest.mark.parametrize(
    "line", [one for one in LINES if " ".join(words_of(one)) not in PARSED and one not in PARSED_LINES]
)
def test_an_example_runs(place: Place, broker: RunningBroker, line: str) -> None:
    name = " ".join(words_of(line))
    words = prepare(place, broker, line)
    traits = COMMANDS[words_of(line)].traits
    more = ["-B", broker.bootstrap] if traits.connects and "-B" not in words else []
    more += ["-y"] if traits.asks and "--dry-run" not in words else []
    ran = klog(*words, *more)
    assert ran.code in CODES.get(name, {0}), (words, ran)
