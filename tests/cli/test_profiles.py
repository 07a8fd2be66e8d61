"""Clusters by name: the two files, what is wrong in them, and what a profile protects."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from klog.admin import profiles
from klog.cli.flags import GlobalFlags
from klog.cli.target import resolve
from klog.errors import UsageError
from tests.broker_fixture import RunningBroker
from tests.cli.process import on_terminal
from tests.cli.runner import events_are_told, klog
from tests.rows import each
from tests.until import until

PROD = """\
# the clusters of this team
[prod]  # handle with care
bootstrap_server = "127.0.0.1:1,127.0.0.1:2"
zookeeper = "127.0.0.1:3/klog"
protected = true
colour = "red"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's folder, in a subfolder of which commands run."""
    folder = tmp_path / "project"
    (folder / "deep" / "down").mkdir(parents=True)
    monkeypatch.chdir(folder / "deep" / "down")
    return folder


@pytest.fixture
def at_home(home: Path) -> Path:
    home.mkdir()
    path = home / "profiles.toml"
    path.write_text(PROD)
    return path


# --- the files


@each(
    ("text", "line", "words"),
    [
        ('[a]\nbootstrap_server = "h:1"\n\nprotectd = true\n', 4, ["[a]", "protectd", "protected"]),
        ("[a]\nbootstrap_server = 9092\n", 2, ["bootstrap_server", "string", "9092"]),
        ('[a]\nbootstrap_server = "h:1"\nprotected = "yes"\n', 3, ["protected", "true or false"]),
        ('[a]\nbootstrap_server = "h:1"\ncolour = "pink"\n', 3, ["colour", "pink", "red"]),
        ('# one\n[a]\ncolour = "red"\n', 2, ["[a]", "bootstrap_server", "zookeeper"]),
        ('[a]\nbootstrap_server = "h:1"\npassword_command = "pass a"\n', 3, ["password_command", "client_config"]),
        (
            '[a]\nbootstrap_server = "h:1"\nclient_config = "c"\ntoken_command = "a \'"\n',
            4,
            ["token_command", "quotation"],
        ),
        ('[a]\nbootstrap_server = "h:1"\nclient_config = "c"\ntoken_command = " "\n', 4, ["token_command", "empty"]),
        ('\nserver = "h:1"\n', 2, ["server", "current"]),
        ("current = 1\n", 1, ["current", "string"]),
        ('["a b"]\nbootstrap_server = "h:1"\n', 1, ["a b"]),
        ('[a]\nbootstrap_server = "h:1\n', 2, []),
        ("[a\n", 1, []),
    ],
)
@each("words_of_command", [["topic", "list"], ["profile", "list"], ["profile", "use", "a"]])
def test_what_is_wrong_in_a_file_is_named_with_its_line(
    at_home: Path, text: str, line: int, words: list[str], words_of_command: list[str]
) -> None:
    at_home.write_text(text)
    ran = klog(*words_of_command, "-o", "json")
    assert ran.code == 2
    assert str(at_home) in ran.error["message"] and f"line {line}" in ran.error["message"]
    assert all(word in ran.error["message"] for word in words)
    assert at_home.read_text() == text


@each("content", [b"\xff\xfe\x00", b"a = " + b"[" * 100_000], ids=["no text", "brackets"])
def test_a_file_that_a_stranger_wrote_is_named(at_home: Path, content: bytes) -> None:
    at_home.write_bytes(content)
    ran = klog("profile", "list", "-o", "json")
    assert ran.code == 2 and str(at_home) in ran.error["message"]


def test_the_nearest_project_file_chooses(at_home: Path, home: Path, project: Path) -> None:
    at_home.write_text('current = "prod"\n' + PROD)
    assert resolve(GlobalFlags(), {}, home).bootstrap == "127.0.0.1:1,127.0.0.1:2"
    (project / ".klog.toml").write_text('current = "mine"\n[mine]\nbootstrap_server = "far:1"\n')
    target = resolve(GlobalFlags(), {}, home)
    assert (target.bootstrap, target.title) == ("far:1", "mine") and str(project) in target.source
    (project / "deep" / ".klog.toml").write_text('[near]\nbootstrap_server = "near:1"\n')
    assert resolve(GlobalFlags(), {}, home).title == "prod"  # the nearest one names none
    assert resolve(GlobalFlags(profile="near"), {}, home).bootstrap == "near:1"
    (project / "deep" / ".klog.toml").write_text('current = "prod"\n')
    assert resolve(GlobalFlags(), {"KLOG_PROFILE": "prod"}, home).title == "prod"
    many = resolve(GlobalFlags(bootstrap_server="a:1,b:2,c:3", zookeeper="d:4"), {}, home)
    assert "a:1" in many.title and "2" in many.title and "b:2" not in many.title and "c:3" in str(many)
    assert resolve(GlobalFlags(), {"KLOG_BOOTSTRAP_SERVER": "e:1"}, home).profile is None


def test_a_checkout_cannot_take_the_place_of_a_profile(at_home: Path, home: Path, project: Path) -> None:
    (project / ".klog.toml").write_text('[prod]\nbootstrap_server = "127.0.0.1:1"\n')
    with pytest.raises(UsageError) as two:
        resolve(GlobalFlags(profile="prod"), {}, home)
    assert str(at_home) in two.value.message and str(project) in two.value.message


@pytest.mark.parametrize("key", ["password_command", "token_command"])
def test_a_checkout_cannot_choose_what_runs_here(at_home: Path, home: Path, project: Path, key: str) -> None:
    path, ran = project / ".klog.toml", project / "ran"
    text = '[a]\nbootstrap_server = "h:1"\nclient_config = "c"\n'
    path.write_text(f'current = "a"\n{text}{key} = "touch {ran}"\n')
    for words in (["broker", "list"], ["profile", "list"], ["broker", "list", "--profile", "prod"]):
        refused = klog(*words, "-o", "json")
        assert refused.code == 2 and key in refused.error["message"] and str(path) in refused.error["message"]
    path.write_text(text)
    assert klog("profile", "set", "a", f"{key}=touch {ran}").code == 2
    assert path.read_text() == text and not ran.exists()


def test_a_project_file_that_others_may_write_is_refused(home: Path, project: Path) -> None:
    path = project / ".klog.toml"
    path.write_text('current = "a"\n[a]\nbootstrap_server = "h:1"\n')
    path.chmod(0o666)
    with pytest.raises(UsageError, match="everyone"):
        resolve(GlobalFlags(), {}, home)
    path.chmod(0o644)
    assert resolve(GlobalFlags(), {}, home).title == "a"
    if os.getuid() == 0:
        os.chown(path, 12345, -1)
        with pytest.raises(UsageError, match="12345"):
            resolve(GlobalFlags(), {}, home)
    assert resolve(GlobalFlags(bootstrap_server="b:1"), {}, home).bootstrap == "b:1"


# --- the commands


def test_profiles_are_written_and_comments_stay(at_home: Path, dead_address: str) -> None:
    ran = klog("profile", "add", "dev", "-B", dead_address, "--colour", "green", "--timeout", "1s", "-o", "json")
    assert ran.code == 0 and "id" in ran.stderr  # nothing answers there: written without an id
    (row,) = ran.rows
    assert (row["name"], row["bootstrap"], row["colour"], row["current"]) == ("dev", dead_address, "green", False)
    assert klog("profile", "use", "dev").code == 0
    assert klog("profile", "set", "prod", "read_only=true", "colour=", "zookeeper=z:1").code == 0
    rows = {row["name"]: row for row in klog("profile", "list", "-o", "json").rows}
    assert rows["dev"]["current"] and not rows["prod"]["current"]
    assert (rows["prod"]["read_only"], rows["prod"]["colour"], rows["prod"]["zookeeper"]) == (True, None, "z:1")
    comments = at_home.read_text()
    assert "# the clusters of this team" in comments and "# handle with care" in comments
    assert klog("profile", "show", "-o", "json").rows[0]["name"] == "dev"
    assert klog("profile", "remove", "dev").code == 0
    assert "dev" not in at_home.read_text() and klog("profile", "show").code == 1


@each(
    "words",
    [
        ["add", "prod", "-B", "h:1"],
        ["add", "new"],
        ["add", "a b", "-B", "h:1"],
        ["add", "current", "-B", "h:1"],
        ["set", "prod", "colour=pink"],
        ["set", "prod", "protected=yes"],
        ["set", "prod", "color=red"],
        ["set", "prod", "bootstrap_server=", "zookeeper="],
        ["use"],
        ["use", "prod", "--none"],
    ],
)
def test_what_cannot_be_written_changes_nothing(at_home: Path, words: list[str]) -> None:
    assert klog("profile", *words).code == 2
    assert at_home.read_text() == PROD
    assert [one.name for one in at_home.parent.iterdir()] == [at_home.name]


def test_use_says_when_something_goes_before_it(at_home: Path, project: Path) -> None:
    (project / ".klog.toml").write_text('current = "near"\n[near]\nbootstrap_server = "near:1"\n')
    ran = klog("profile", "use", "prod")
    assert ran.code == 0 and "near" in ran.stderr
    ran = klog("profile", "use", "prod", "--project")
    assert ran.code == 0 and "warning" not in ran.stderr
    assert profiles.read_file(Path.cwd() / ".klog.toml").current == "prod"
    assert klog("profile", "use", "--none").code == 0
    assert profiles.read_file(at_home).current is None


def test_a_profile_of_a_project_is_used_there_alone(at_home: Path, project: Path) -> None:
    (project / ".klog.toml").write_text('[near]\nbootstrap_server = "near:1"\n')
    before = at_home.read_text()
    ran = klog("profile", "use", "near", "-o", "json")
    assert ran.code == 1 and "--project" in ran.error["hint"]
    assert at_home.read_text() == before
    assert klog("profile", "use", "near", "--project").code == 0
    assert profiles.read_file(project / ".klog.toml").current == "near"
    assert not (Path.cwd() / ".klog.toml").exists()
    assert klog("profile", "show", "-o", "json").rows[0]["name"] == "near"


def test_a_profile_is_tried(broker: RunningBroker, home: Path, dead_address: str) -> None:
    assert klog("profile", "add", "here", "-B", broker.bootstrap).code == 0
    (row,) = klog("profile", "list", "-o", "json").rows
    assert row["cluster_id"]
    assert klog("profile", "add", "dead", "-B", dead_address, "--timeout", "1s").code == 0
    assert klog("profile", "add", "wrong", "-B", broker.bootstrap, "--cluster-id", "another").code == 0
    ran = klog("profile", "test", "-o", "json")
    assert ran.code == 1
    found = {row["name"]: row for row in ran.rows}
    assert (found["here"]["cluster_id"], found["here"]["brokers"]) == (row["cluster_id"], 1)
    assert found["here"]["error"] is None and found["here"]["ms"] is not None
    assert found["dead"]["error"] and found["wrong"]["error"] == "WRONG_CLUSTER"
    assert klog("profile", "test", "here").code == 0


# --- protection


@pytest.fixture
def named(broker: RunningBroker, home: Path) -> str:
    """A profile of the broker, not protected yet."""
    assert klog("profile", "add", "here", "-B", broker.bootstrap).code == 0
    return "here"


@pytest.mark.parametrize("by", ["profile", "address"])
def test_a_protected_cluster_wants_its_name(named: str, broker: RunningBroker, topic: str, by: str) -> None:
    """However the cluster is addressed."""
    where = ["--profile", named] if by == "profile" else ["-B", broker.bootstrap]
    assert klog("topic", "create", topic, *where).code == 0
    assert klog("profile", "set", named, "protected=true").code == 0
    ran = klog("topic", "delete", topic, "-o", "json", *where)
    assert ran.code == 2 and f"--confirm {named}" in ran.error["message"]
    ran = klog("topic", "delete", topic, "--yes", "-o", "json", *where)
    assert ran.code == 2 and f"--confirm {named}" in ran.error["hint"]
    assert klog("topic", "delete", topic, "--yes", "--confirm", "other", *where).code == 2
    assert klog("topic", "delete", topic, "--dry-run", *where).code == 0
    assert klog("topic", "describe", topic, *where).code == 0
    assert klog("topic", "delete", topic, "--yes", "--confirm", named, *where).code == 0


def test_a_name_is_not_confirmed_on_another_cluster(broker: RunningBroker, at: list[str], topic: str) -> None:
    assert klog("topic", "create", topic, *at).code == 0
    assert klog("topic", "delete", topic, "--yes", "--confirm", "prod", *at).code == 2
    assert klog("topic", "describe", topic, *at).code == 0


@pytest.mark.parametrize(("answer", "is_deleted"), [("yes", False), ("here", True)])
def test_the_name_is_typed(named: str, topic: str, home: Path, answer: str, is_deleted: bool) -> None:
    assert klog("topic", "create", topic, "--profile", named).code == 0
    assert klog("profile", "set", named, "protected=true").code == 0
    with on_terminal("topic", "delete", topic, "--profile", named, KLOG_HOME=str(home)) as (process, terminal):
        terminal.wait_for(f"type {named}")
        terminal.type(answer + "\n")
        terminal.read_to_end()
        assert process.wait(20) == (0 if is_deleted else 1)
    assert klog("topic", "describe", topic, "--profile", named).code == (1 if is_deleted else 0)


def tree(at: list[str]) -> set[tuple[str, int]]:
    """Paths and versions of znodes, without what the cluster writes by itself: klog.events, the act of that, and the
    node by which the controller asks ZooKeeper for the time while a deleted topic waits."""
    rows = klog("zk", "tree", "/", "-o", "json", *at).rows
    own = re.compile("klog.events|^/klog/acts|^/klog/topic_epochs$")
    return {(row["path"], row["version"]) for row in rows if own.search(row["path"]) is None}


def test_what_changes_a_read_only_cluster_is_refused(
    named: str, broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    at = ["--profile", named]
    assert klog("topic", "create", topic, *at).code == 0
    until(lambda: events_are_told(*at), "the topic of events")
    before = tree(at)
    assert klog("profile", "set", named, "read_only=true").code == 0
    offsets = tmp_path / "offsets"
    offsets.write_text("")
    other = ["-B", broker.bootstrap]
    for words in (
        ["topic", "create", "x", *at],
        ["topic", "create", "x", *other],
        ["topic", "config", topic, "retention.ms=1000", *at],
        ["topic", "delete", topic, "--yes", *at],
        ["group", "rewind", "g", "--to", "start", "--yes", *at],
        ["offset", "import", offsets, "--yes", *at],
        ["produce", topic, *at],
        ["tail", topic, "-G", "g", "-e", *at],
        ["replay", topic, "x", *at],
        ["broker", "stop", broker.broker_id, *at],
        ["topic", "elect", *at],
        ["schema", "level", "NONE", *at],
        ["perf", "produce", topic, *at],
        ["audit", "run", *at],
        ["mirror", "--source", "127.0.0.1:1", "--target", broker.bootstrap, "--topic", "x"],
    ):
        ran = klog(*words, "--output", "jsonl")
        assert ran.code == 2 and "read_only=false" in ran.error["hint"], words
    assert klog("topic", "delete", topic, "--dry-run", *at).code == 0
    assert klog("topic", "config", topic, *at).code == 0
    assert klog("tail", topic, "-e", *at).code == 0
    assert tree(at) == before
