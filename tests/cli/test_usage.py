"""Goal: whatever is typed wrongly is answered by a message that helps. Method: the command lines of ``usage.txt``."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path

import pytest

from klog.cli import other_words
from klog.cli.command_table import ENTRIES
from klog.cli.root import walk
from klog.names import TopicPartition
from tests.admin.group_registry import commit, registry_of
from tests.broker_fixture import RunningBroker
from tests.cli.runner import events_are_told, klog
from tests.rows import each
from tests.tools.verbs import make_topic, send
from tests.until import until

LIMIT_S = 2.0
"""How long a wrong command line may take, as the slowest of a few tries."""

TRIES = 3
"""A busy machine makes one of them slow, hardly each."""


def cases() -> list[list[str]]:
    """``[section, command line, exit code, what it names]`` of each line."""
    section, found = "", []
    for line in (Path(__file__).parent / "usage.txt").read_text("utf-8").splitlines():
        if line.startswith("== "):
            section = line[3:]
        elif line and not line.startswith("#"):
            found.append([section, *(part.strip() for part in line.rsplit(" | ", 2))])
    return found


CASES = cases()
COMMANDS = {" ".join(words) for words, _ in walk()}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files that are no good, by the placeholder that names them."""
    folder = tmp_path_factory.mktemp("usage")
    plan = '{"version": 1, "partitions": [{"topic": "%s", "partition": %s, "replicas": %s}]}'
    contents = {
        "empty": b"",
        "binary": bytes(range(256)) * 4,
        "text": b"hello\nworld\n",
        "cut": b'{"version": 1, "partitions": [',
        "list": b"[1, 2]",
        "unnamed": b'{"type": "record"}',
        "offsets": b"usage-app,usage-orders,0,many\n",
        "plan_topic": (plan % ("usage-ordes", 0, "[1]")).encode(),
        "plan_broker": (plan % ("usage-orders", 0, "[99]")).encode(),
        "plan_twice": (plan % ("usage-orders", 0, "[1, 1]")).encode(),
        "plan_word": (plan % ("usage-orders", '"zero"', "[1]")).encode(),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    return {name: str(folder / name) for name in (*contents, "folder", "missing")}


@pytest.fixture(scope="module")
def cluster(broker: RunningBroker) -> dict[str, str]:
    """The addresses of a broker with the topics ``usage-orders`` and ``usage-payments``, and a group ``usage-app``."""
    make_topic(broker.bootstrap, "usage-orders", 2)
    make_topic(broker.bootstrap, "usage-payments", 1)
    send(broker.bootstrap, "usage-orders", b"1\n2\n3\n")
    with registry_of(broker.zookeeper) as session:
        commit(session, "usage-app", {TopicPartition("usage-orders", 0): 0})
    until(lambda: events_are_told("-B", broker.bootstrap), "the topic of events")
    return {"bootstrap": broker.bootstrap, "zookeeper": broker.zookeeper}


def check(
    line: str,
    code: str,
    words: str,
    names: dict[str, str],
    env: dict[str, str | None],
) -> None:
    """Run the line; compare exit code and what is named. No traceback, no bug, no control characters, in time."""
    typed = [_characters(word) for word in shlex.split(re.sub(r"\{(\w+)\}", lambda found: names[found[1]], line))]
    env = {**env, "COLUMNS": "200"}
    while re.match(r"[A-Z_]+=", typed[0]):
        name, _, value = typed.pop(0).partition("=")
        env[name] = value
    for left in reversed(range(TRIES)):
        begun = time.monotonic()
        ran = klog(*typed, env=env)
        took_s = time.monotonic() - begun
        assert ran.code == int(code), ran
        if took_s <= LIMIT_S:
            break
        assert left, f"took {took_s:.1f} s: {ran}"
    assert ran.stderr or ran.stdout, "it says nothing"
    assert "Traceback" not in ran.stderr and "internal error" not in ran.stderr, ran
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", ran.stdout + ran.stderr), ran
    shown = ran.stderr if not ran.stdout else ran.stdout + ran.stderr
    missing = [word for word in words.format(**names).split(" & ") if not re.search(pattern(word), shown)]
    assert not missing, ran


def pattern(word: str) -> str:
    """What finds a word whole; behind ``?``, in what is asked: ``did you mean topic?``"""
    name = word.removeprefix("?")
    begin, end = r"(?<!\w)" if name[0].isalnum() else "", r"(?!\w)" if name[-1].isalnum() else ""
    return f"{begin}{re.escape(name)}{end}" + (r".*\?" if word.startswith("?") else "")


def _characters(word: str) -> str:
    r"""``\x1b`` and ``\udcff`` are characters that no file of text can have."""
    return re.sub(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})", lambda found: chr(int(found[1] or found[2], 16)), word)


@each(("line", "code", "words"), [case[1:] for case in CASES if case[0] == "alone"], tests=4)
def test_it_is_wrong_without_any_cluster(files: dict[str, str], home: Path, line: str, code: str, words: str) -> None:
    check(line, code, words, files, {})


@each(("line", "code", "words"), [case[1:] for case in CASES if case[0] == "on a broker"], tests=4)
def test_it_is_wrong_on_a_broker(
    files: dict[str, str], cluster: dict[str, str], home: Path, line: str, code: str, words: str
) -> None:
    check(line, code, words, {**files, **cluster}, {"KLOG_BOOTSTRAP_SERVER": cluster["bootstrap"]})


def test_each_command_is_there() -> None:
    typed = [shlex.split(case[1]) for case in CASES]
    asked = {" ".join(words[:size]) for words in typed for size in (1, 2)}
    assert COMMANDS - asked == set()


def test_what_is_wrong_is_data_as_well() -> None:
    error = klog("topic", "create", "orders", "-p", "-o", "json").error
    assert error["code"] == "USAGE" and "-p" in error["message"]
    error = klog("topic", "create", "-o", "json").error
    assert error["code"] == "USAGE" and "TOPIC" in error["hint"]


def test_a_command_that_is_gone_is_answered_with_one_that_there_is() -> None:
    assert not COMMANDS & {*other_words.GONE, *other_words.RENAMED}
    now = map(str.split, other_words.RENAMED.values())
    assert {words[0] if words[0] in COMMANDS else " ".join(words[:2]) for words in now} <= COMMANDS


def test_a_word_of_another_tool_names_a_command_that_there_is() -> None:
    known = COMMANDS | {entry.name for entry in ENTRIES} | {"--version"}
    assert set(other_words.COMMANDS.values()) <= known
    assert not set(other_words.COMMANDS) & {entry.name for entry in ENTRIES}


def test_a_flag_of_another_tool_is_none_of_klogs_where_it_is_suggested() -> None:
    flags = {name for _, command in walk() for parameter in command.params for name in parameter.opts}
    assert {other.needs for other in other_words.FLAGS.values()} <= flags
