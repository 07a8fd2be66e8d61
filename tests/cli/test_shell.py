"""The shell: its completer, its scripts, and a person at a terminal."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from klog.admin.health.rules import SUBJECTS as PARTS
from klog.cli import name_cache
from klog.cli.flags import GlobalFlags
from klog.cli.root import walk
from klog.cli.shell import bar
from klog.cli.shell.cluster import ShellCluster
from klog.cli.shell.completer import KlogCompleter, split_unfinished
from klog.cli.shell.live import FRESH_S, Live
from klog.cli.shell.prompt import Prompt
from klog.cli.shell.settings import ShellSettings
from klog.cli.shell.shell import Shell
from klog.names import TopicPartition
from klog.tools.why.gathering import parsed
from tests.admin.group_registry import commit, registry_of
from tests.broker_fixture import RunningBroker
from tests.cli.process import started
from tests.cli.runner import act_rows, klog
from tests.rows import each

PATIENCE_S = 10.0
"""For the first answer of a cluster."""


def at(broker: RunningBroker) -> GlobalFlags:
    return GlobalFlags(bootstrap_server=broker.bootstrap)


def completions(line: str, *topics: str) -> list[str]:
    names = Live(lambda kind, about: list(topics) if kind == "topics" else [], patience_s=PATIENCE_S)
    completer = KlogCompleter(ShellCluster(GlobalFlags()), names)
    return [one.text for one in completer.get_completions(Document(line), CompleteEvent())]


AVRO = '{"type": "record", "name": "Person", "fields": [{"name": "country_of_birth", "type": "string"}]}'


def test_names_that_a_cluster_has_are_offered(broker: RunningBroker, topic: str) -> None:
    to, view = ("-B", broker.bootstrap), topic.replace("-", "_").replace(".", "_")
    assert klog("topic", "create", topic, "-p", "2", *to).code == 0
    assert klog("topic", "create", f"{topic}-old", *to).code == 0
    assert klog("topic", "delete", f"{topic}-old", "-y", *to).code == 0
    assert klog("schema", "register", f"{topic}-value", *to, input=AVRO).code == 0
    with registry_of(broker.zookeeper) as registry:
        commit(registry, f"{topic}-readers", {TopicPartition(topic, 0): 0})
    *_, act = act_rows(broker.zookeeper, topic=f"{topic}-old")
    cluster = ShellCluster(at(broker))

    def names(kind: str, about: str = "") -> list[str]:
        return [one for one in cluster.names(kind, about) if topic in one or view in one or about]

    assert names("topics") == [topic] and names("groups") == [f"{topic}-readers"] and names("views") == [view]
    assert names("partitions") == [f"{topic}-0", f"{topic}-1"] and names("numbers", topic) == ["0", "1"]
    assert names("trash") == [f"{topic}-old"] and names("schemas") == [f"{topic}-value"]
    assert cluster.names("brokers", "") == [str(broker.broker_id)] == names("znodes", "/brokers/ids")
    assert act["act"] in [one.partition("\t")[0] for one in cluster.names("acts", "")]
    assert {"timestampType", "value"} <= set(names("columns", view))
    assert {"page", "who"} <= set(names("columns", f"{topic}:json=page string, who struct<name: string, age: int>"))
    assert "country_of_birth" in names("columns", f"{topic}:avro")
    cluster.close()


def test_the_subjects_that_are_offered_are_the_commands() -> None:
    for word, kind in name_cache.SUBJECTS.items():
        named = {"partitions": "t-0", "brokers": "1"}.get(kind, "t")
        assert word in PARTS or parsed([word, named, "5"] if word == "message" else [word, named]).kind is not None


def test_files_are_offered_where_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "words.txt").touch()
    assert completions(f"produce t {tmp_path}/wo") == ["rds.txt"]


@each("words", [words for words, _ in walk()], ids=" ".join, tests=2)
def test_every_command_and_flag_of_the_command_line_is_offered(words: tuple[str, ...]) -> None:
    if words == ("shell",):
        return
    assert words[-1] in completions(" ".join((*words[:-1], "")))
    offered = completions(" ".join((*words, "-")))
    command = dict(walk())[words]
    assert {word for parameter in command.params for word in parameter.opts if word.startswith("-")} <= set(offered)


@given(st.text(max_size=30))
def test_no_line_breaks_completion(line: str) -> None:
    completions(line, "a topic")
    words, unfinished = split_unfinished(line)
    assert line.endswith(unfinished) or set(line) & set("\"'\\") or not line.strip()
    assert all(isinstance(word, str) for word in words)


# --- Names in the background -----------------------------------------------------------------------------------------


def refreshed() -> None:
    """Wait for the refreshes under way."""
    for one in threading.enumerate():
        if one.name == "shell-refresh":
            one.join(20)


def test_asking_never_waits_and_old_names_stay_while_new_ones_are_fetched() -> None:
    go, now = threading.Event(), [0.0]
    answers = iter([["old"], ["new"]])

    def fetch(kind: str, about: str) -> list[str]:
        assert go.wait(10)
        return next(answers)

    live = Live(fetch, clock=lambda: now[0])
    assert live.now("topics") == ()  # the fetch hangs, the question does not
    go.set()
    refreshed()
    assert live.now("topics") == ["old"]
    go.clear()
    now[0] += FRESH_S + 1
    assert live.now("topics") == ["old"]
    go.set()
    refreshed()
    assert live.now("topics") == ["new"]


@pytest.mark.filterwarnings("error")  # pytest would make a warning of what a thread raises
def test_a_failing_refresh_says_nothing_and_leaves_what_was_known(capfd: pytest.CaptureFixture[str]) -> None:
    outcomes: list[list[str] | Exception] = [["known"], RuntimeError("no broker"), OSError("no network")]

    def fetch(kind: str, about: str) -> list[str]:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    live = Live(fetch)
    while outcomes:
        live.now("topics")
        refreshed()
        live.forget_age()
    assert live.now("topics") == ["known"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.filterwarnings("error")
def test_names_of_a_dead_cluster_are_none_and_silent(dead_address: str, capfd: pytest.CaptureFixture[str]) -> None:
    live = Live(ShellCluster(GlobalFlags(bootstrap_server=dead_address)).names)
    live.now("topics")
    refreshed()
    assert live.now("topics") == ()
    assert capfd.readouterr() == ("", "")


# --- Scripts ----------------------------------------------------------------------------------------------------------


def test_a_script_stops_at_the_first_failure_with_its_exit_code(tmp_path: Path, dead_address: str) -> None:
    file = tmp_path / "script"
    file.write_text(f"# a comment\n\ncompletion bash\ntopic list -B {dead_address}\nzookeeper status\n")
    ran = klog("shell", "-f", file)
    assert ran.code == 1 and "_klog_completion" in ran.stdout and dead_address in ran.stderr
    assert "ADDRESS" not in ran.stdout
    file.write_text("topic nonsense\ncompletion bash\n")
    assert klog("shell", "-f", file).code == 2
    kept_going = klog("shell", "-k", "-f", file)
    assert kept_going.code == 2 and "_klog_completion" in kept_going.stdout


def test_lines_of_stdin_are_a_script_where_it_is_no_terminal() -> None:
    ran = klog("shell", input="klog completion bash\nexit\ntopic nonsense\n")
    assert ran.code == 0 and "_klog_completion" in ran.stdout
    assert klog("shell", input='topic "open quote\n').code == 2
    assert klog("shell", input="shell\n").code == 2


def test_commands_given_with_e(dead_address: str) -> None:
    assert klog("shell", "-e", "completion bash", "-e", "help topic").code == 0
    ran = klog("shell", "-B", dead_address, "-e", "topic list -o json")
    assert ran.code == 1 and ran.error["cluster"] == f"{dead_address} (from flag -B)"
    assert klog("shell", "-e", "completion bash", "-f", "x").code == 2


def test_the_shells_cluster_is_the_commands_and_a_line_may_name_another(
    broker: RunningBroker, dead_address: str
) -> None:
    assert klog("shell", "-B", broker.bootstrap, "-e", "topic list").code == 0
    assert klog("shell", "-B", dead_address, "-e", f"topic list -B {broker.bootstrap}").code == 0
    assert klog("shell", "-B", dead_address, "-e", f"topic list -z {broker.zookeeper}").code == 0


# --- A person ---------------------------------------------------------------------------------------------------------


def typed(text: str, history: Path, shared: GlobalFlags | None = None) -> Shell:
    shell = Shell(shared or GlobalFlags())
    with create_pipe_input() as keys:
        keys.send_text(text)
        Prompt(shell, ShellSettings(), history, terminal_input=keys, terminal_output=DummyOutput()).run()
    shell.cluster.close()
    return shell


def toolbar(shell: Shell) -> str:
    return bar.toolbar(shell.place, None, shell.last, shell.trouble)


def test_lines_are_remembered_but_for_those_that_begin_with_a_space(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    typed("completion bash\n secret\nexit\n", home / "shell_history")
    text = (home / "shell_history").read_text()
    assert "completion bash" in text and "secret" not in text
    assert "_klog_completion" in capfd.readouterr().out


def test_ctrl_c_drops_the_line(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    typed("garbage\x03completion bash\nexit\n", home / "shell_history")
    captured = capfd.readouterr()
    assert "_klog_completion" in captured.out and captured.err == ""


def test_the_toolbar_names_the_cluster_and_a_failure(home: Path, dead_address: str) -> None:
    shell = Shell(GlobalFlags(bootstrap_server=dead_address))
    assert dead_address in toolbar(shell) and "flag -B" in toolbar(shell) and "exit" not in toolbar(shell)
    shell.run_line("topic nonsense")
    assert "exit 2" in toolbar(shell)
    assert "no cluster" in toolbar(Shell(GlobalFlags()))


def test_a_script_on_a_pipe_runs_each_line_as_it_comes() -> None:
    with started("shell") as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"completion fish\n")
        process.stdin.flush()
        assert b"klog" in process.stdout.readline()
        process.stdin.close()
        assert process.wait(20) == 0
