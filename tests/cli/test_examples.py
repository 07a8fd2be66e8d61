"""Every command has an example, and each example is run as it stands, here or in the tests that `example_lines` names.

`clicks`, `orders`, `billing` and the files are made for it.
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
from klog.coordination.embedded import ZooKeeperServer
from klog.names import TopicPartition
from tests.admin.group_registry import commit, registry_of
from tests.broker_fixture import RunningBroker
from tests.cli.example_lines import COMMANDS, ELSEWHERE, LINES, SERVING, words_of
from tests.cli.runner import act_rows, events_are_told, klog
from tests.processes import ROOT
from tests.rows import each
from tests.tools.verbs import make_topic, send
from tests.until import until

CODES = {"status": {0, 1, 2}, "topic describe": {0, 1}, "audit report": {0, 1}}
"""What an example may end with besides 0: the broker is shared with other tests."""


def test_every_command_has_one_and_says_what_it_is_for() -> None:
    assert [words for words in COMMANDS if not examples_of(words)] == []
    assert sum(len(examples_of(words)) for words in COMMANDS) == len(LINES)
    for line in TEXT.strip().splitlines():
        assert re.fullmatch(r"klog \S.*  # [A-Z].*\.", line), line


@each("line", ELSEWHERE)
def test_an_example_runs_elsewhere(line: str) -> None:
    assert line in LINES and line in (ROOT / ELSEWHERE[line]).read_text()


@each("line", LINES)
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
            name: f"{name}-{mark}" for name in ("clicks", "orders", "billing", "accounts", "views", "deleted", "carol")
        }
        self.names |= {name: f"/{name[1:]}-{mark}" for name in ("/mine", "/note")}
        clicks, orders, billing = (self.names[name] for name in ("clicks", "orders", "billing"))
        make_topic(broker.bootstrap, clicks, 2)
        make_topic(broker.bootstrap, orders, 2)
        send(broker.bootstrap, clicks, b"".join(b"%d\n" % number for number in range(20)), partition=0)
        with registry_of(broker.zookeeper) as session:
            commit(session, billing, {TopicPartition(clicks, 0): 5})
        partition = {"topic": clicks, "partition": 0, "replicas": [broker.broker_id]}
        lines = ["a:1", "b:2"]
        files = {
            "messages.txt": "\n".join(lines),
            "messages.jsonl": '{"key": "a", "value": "1"}\n',
            "plan.json": json.dumps({"version": 1, "partitions": [partition]}),
            "offsets.json": klog("offset", "export", billing, "--format", "json", "-B", broker.bootstrap).stdout,
            "clicks.avsc": '{"type": "record", "name": "click", "fields": [{"name": "at", "type": "long"}]}',
            "password.txt": "a new password\n",
            "views.py": "# a stream's program\n",
            "server.properties": "listeners=PLAINTEXT://127.0.0.1:9092\n",
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


@pytest.fixture(scope="module")
def guarded(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that checks permissions, and permits everything to the one who runs the examples."""
    settings = {"authorizer.class.name": "klog", "super.users": "User:ANONYMOUS"}
    chroot = f"{zookeeper.address}/{uuid4().hex}"
    with RunningBroker(tmp_path_factory.mktemp("guarded"), chroot, **settings).running() as broker:
        yield broker


def prepare(place: Place, broker: RunningBroker, line: str) -> list[str]:
    """What must be there before; the words to run."""
    words, at = place.words(line), ["-B", broker.bootstrap]
    if "ACT" in words:
        assert klog("topic", "config", place.names["clicks"], "retention.ms=5d", "-y", *at).code == 0
        act = act_rows(broker.zookeeper, topic=place.names["clicks"])[-1]["act"]
        words = [act if word == "ACT" else word for word in words]
    if words[0] == "events":
        until(lambda: events_are_told(*at), "the topic of events")
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
    if words[0] == "security" and words[1] != "init":
        assert klog("security", "init", "--dir", "closed").code == 0
    if words[:2] == ["security", "close"]:
        assert klog("security", "add", "server.properties", "--dir", "closed", "--port", 9093).code == 0
    if words[:2] in (["user", "passwd"], ["user", "delete"]):
        assert klog("user", "add", place.names["carol"], "--generate", *at).code == 0
    if words[:1] == ["acl"] and words[1] in ("remove", "check"):
        assert klog("acl", "add", *words[2:], *at).code == 0
    if words[:2] == ["quota", "remove"]:
        assert klog("quota", "set", "producer_byte_rate=1MB", *words[-2:], *at).code == 0
    if words[:1] == ["profile"] and words[1] != "add":
        for name in ("prod", "local"):
            assert klog("profile", "add", name, *at).code == 0
    return words


def check_example(line: str, broker: RunningBroker, folder: Path) -> None:
    """That it ends as it should, in a folder, under a home, and with topics and groups of its own."""
    name = " ".join(words_of(line))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KLOG_HOME", str(folder / "home"))
        patch.chdir(folder)
        words = prepare(Place(broker, folder), broker, line)
        traits = COMMANDS[words_of(line)].traits
        more = ["-B", broker.bootstrap] if traits.connects and "-B" not in words else []
        more += ["-y"] if traits.asks and "--dry-run" not in words else []
        ran = klog(*words, *more)
        if name == "quota set":  # others use the broker, too
            whose = words[next(at for at, word in enumerate(words) if word.startswith("--")) :]
            assert klog("quota", "remove", *whose, *more).code == 0
    assert ran.code in CODES.get(name, {0}), (words, ran)


HERE = [line for line in LINES if line not in ELSEWHERE and line not in SERVING]


@pytest.mark.long("each example on a cluster; by default all are parsed, and rows.txt runs such commands")
@each("line", HERE, tests=4)
def test_an_example_runs(line: str, broker: RunningBroker, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    its_broker = request.getfixturevalue("guarded") if words_of(line)[0] == "acl" else broker
    check_example(line, its_broker, tmp_path)
