"""What is written in the shell: statements, names, settings, and what is offered before Enter."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples

from klog.admin.profiles import Profile
from klog.cli.flags import GlobalFlags
from klog.cli.screen import Screen
from klog.cli.shell import bar
from klog.cli.shell.cluster import ClusterFacts, WorstLag
from klog.cli.shell.completer import KlogCompleter, usage
from klog.cli.shell.history import without_secrets
from klog.cli.shell.live import Live
from klog.cli.shell.shell import LastCommand, Shell
from klog.cli.shell.syntax import open_end, read, statements
from klog.cli.shell.words import Using
from klog.cli.target import Target
from klog.config.broker import SECRETS as OF_BROKERS
from klog.security.client_security import SECRETS as OF_CLIENTS
from tests.broker_fixture import RunningBroker
from tests.cli.process import started
from tests.cli.runner import klog
from tests.cli.test_startup import modules_after_run
from tests.rows import each

NAMES = {
    ("topics", ""): ["orders", "logs"],
    ("groups", ""): ["readers"],
    ("brokers", ""): ["1", "2"],
    ("numbers", "orders"): ["0", "1", "2"],
    ("znodes", "/"): ["brokers", "klog"],
    ("znodes", "/brokers"): ["ids", "topics"],
    ("profiles", ""): ["prod", "staging"],
    ("schemas", ""): ["orders-value"],
    ("acts", ""): ["mifz3k2a9x4q"],
    ("views", ""): ["orders", "log_lines"],
    ("columns", "orders"): ["key", "value", "offset"],
    ("columns", "log-lines:json=page string"): ["page", "key", "offset"],
}


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    shell = Shell(GlobalFlags())
    yield shell
    shell.cluster.close()


@pytest.fixture
def names() -> Live:
    catalog = Live(lambda kind, about: NAMES.get((kind, about), []), patience_s=10)
    for kind, about in NAMES:
        catalog.soon(kind, about)
    return catalog


# --- Statements -------------------------------------------------------------------------------------------------------


@each(
    ("text", "expected"),
    [
        ("a b; c", [["a", "b"], ["c"]]),
        ("a 'b;c' ;; d", [["a", "b;c"], [], ["d"]]),
        ('a "b\nc"\nd', [["a", "b\nc"], ["d"]]),
        ("a \\\n b", [["a", "b"]]),
        ("a # b", [["a", "#", "b"]]),
        ("# a; b\nc", [[], ["c"]]),
        ("a $topic \"$topic-x\" '$topic'", [["a", "$topic", "$topic-x", "$topic"]]),
        ("\\$topic \"\\$n\" b$", [["$topic", "$n", "b$"]]),
        ("\\c prod; \\watch", [["\\c", "prod"], ["\\watch"]]),
        ("a \\watch 2s", [["a", "\\watch", "2s"]]),
        ("a \\w b\\watch", [["a", "w", "bwatch"]]),
    ],
)  # fmt: skip
def test_a_text_is_statements_of_words(text: str, expected: list[list[str]]) -> None:
    found, at = [], 0
    while at < len(text):
        statement = read(text, at)
        found.append(statement.texts)
        at = statement.next
    assert found == expected


def test_what_is_made_of_the_output() -> None:
    first, second = statements("topic list > a.txt; tail t | grep $x; true")
    assert (first.texts, first.file, first.append, first.pipe) == (["topic", "list"], "a.txt", False, None)
    assert (second.texts, second.pipe) == (["tail", "t"], "grep $x; true")
    assert statements("tail t >> 'a b'")[0].file == "a b" and statements("tail t >> x")[0].append
    assert statements("tail t --grep a>b")[0].texts[-1] == "a>b"
    for line in ("tail t --grep 'a|b'|cat", 'tail t --grep "a|b" | cat', "tail t --grep a\\|b |cat"):
        assert (read(line).texts, read(line).pipe) == (["tail", "t", "--grep", "a|b"], "cat")
    assert (read("| cat").texts, read("| cat").pipe) == ([], "cat")
    system, after = statements("! echo 'a\nb' | cat; ls\npwd")
    assert (system.system, after.texts) == ("echo 'a\nb' | cat; ls", ["pwd"])


@each(
    ("text", "left"),
    [("a 'b", "'"), ('a "b', '"'), ("a \\", "\\"), ("a", ""), ("a 'b'", ""), ("a; ! x \\", "\\"), ("a | awk '{", "'")],
)
def test_what_a_line_leaves_open(text: str, left: str) -> None:
    assert open_end(text) == left


@given(st.text(alphabet="ab \\'\"$;|>!#\n{}1", max_size=24))
def test_every_text_is_read_to_its_end(text: str) -> None:
    at = 0
    while at < len(text):
        statement = read(text, at)
        assert at < statement.next <= len(text)
        assert all(at <= word.start < word.end <= statement.next for word in statement.words)
        at = statement.next


# --- Running them -----------------------------------------------------------------------------------------------------


def ran(capfd: pytest.CaptureFixture[str], shell: Shell, *lines: str) -> str:
    capfd.readouterr()
    for line in lines:
        shell.run_line(line)
        assert shell.status == 0, (line, capfd.readouterr().err)
    return capfd.readouterr().out


def refused(capfd: pytest.CaptureFixture[str], shell: Shell, line: str) -> str:
    shell.run_line(line)
    assert shell.status == 2
    return capfd.readouterr().err


def run_process(*lines: str, stdin: str = "") -> tuple[int, str]:
    """The exit code and stdout of a shell that runs these lines, to their end."""
    words = ("-k", *(word for line in lines for word in ("-e", line))) if lines else ()
    with started("shell", *words) as process:
        out, _ = process.communicate(stdin.encode(), timeout=60)
        return process.returncode, out.decode()


def test_sh_takes_what_it_is_given_and_files_take_output(tmp_path: Path) -> None:
    file = tmp_path / "out"
    lines = [
        "! x=7; echo $x; echo y",
        "echo abc | x=7; tr a-b $x",
        f"echo one > {file}; echo two >> {file}",
        "echo $z",
    ]
    assert run_process(*lines) == (0, "7\ny\n77c\n$z\n")
    assert file.read_text() == "one\ntwo\n"
    assert run_process("! exit 3") == (3, "")
    assert run_process(f"echo x > {tmp_path}/no/such/folder") == (1, "")


def test_output_goes_through_what_follows_the_pipe() -> None:
    filtered = "completion bash | tr a-z A-Z | head -n 1"
    code, out = run_process(filtered, "completion bash")
    assert code == 0 and out.startswith("_KLOG_COMPLETION() {\n_klog_completion() {\n")
    assert run_process("completion bash | false") == (1, "")
    assert run_process("completion bash | sleep 0.2; true", "completion bash | cat") == run_process("completion bash")
    assert run_process("topic nonsense | cat") == (2, "")
    assert run_process("| cat") == (2, "")


@each(
    "line",
    ["echo 'x", "echo x >", "| cat", "echo x |", "\\nonsense", "\\watch", "echo x \\watch 0s", "echo x \\watch 2s 3s"],
)
def test_a_line_that_cannot_be_run_is_refused(line: str, shell: Shell, capfd: pytest.CaptureFixture[str]) -> None:
    assert "klog shell: " in refused(capfd, shell, line)


def test_a_line_ends_at_its_first_failure(shell: Shell, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    shell.run_line("echo one; topic nonsense; echo two")
    assert shell.status == 2 and capfd.readouterr().out == "one\n"
    shell.keep_going = True
    shell.run_line("topic nonsense; echo two")
    assert capfd.readouterr().out == "two\n"
    shell.keep_going = False


def test_a_script_over_several_lines(tmp_path: Path) -> None:
    file = tmp_path / "script"
    file.write_text('echo "a\nb"\ncompletion ba\\\nsh > /dev/null; echo c\n! cat\n')
    with started("shell", "-f", str(file)) as process:
        out, _ = process.communicate(b"kept\n", timeout=60)
    assert (process.returncode, out) == (0, b"a\nb\nc\nkept\n")
    assert run_process(stdin="! cat\necho after\n") == (0, "after\n")
    file.write_bytes(b"echo one\necho \xff\n")
    refused = klog("shell", "-f", file)
    assert refused.code == 2 and "UTF-8" in refused.stderr


@each("name", sorted(OF_BROKERS | OF_CLIENTS | {"sasl_password", "listener.name.a.sasl.jaas.config"}))
def test_a_line_is_kept_without_the_secret_that_it_gives(name: str) -> None:
    for line in ("produce t -X {}=s3cret -n 1", "-X '{}=s3cret'", '{} = "s3 s3cret"', '\'{{"{}": "s3cret"}}\''):
        kept = without_secrets(line.format(name))
        assert "s3" not in kept and kept.endswith("***") and name in kept


def test_a_line_without_a_secret_is_kept_as_it_is() -> None:
    lines = (
        "user passwd alice --password-file f",
        "profile set p password_command='pass show x'",
        "password = ",
        "a=b",
    )
    for line in (*lines, "help sasl.password", "profile set p sasl_password=***", "echo $password"):
        assert without_secrets(line) == line


def test_a_script_loads_nothing_of_the_prompt() -> None:
    loaded = modules_after_run(["shell", "-e", "echo x", "-e", "topic list -B 127.0.0.1:1 --timeout 1s"])
    assert "klog.cli.shell.shell" in loaded and "klog.cli.shell.prompt" not in loaded
    assert not loaded & {"prompt_toolkit", "kazoo", "pydantic", "tomlkit"}


# --- Settings ---------------------------------------------------------------------------------------------------------


@each(
    ("text", "parts"),
    [
        ("pager = ''\npagr = ''\n", ["line 2", "pagr", "pager, complete"]),
        ("toolbar = 'yes'\n", ["line 1", "toolbar", "true or false"]),
        ("refresh = '5 parsecs'\n", ["line 1", "refresh"]),
        ("refresh = '10ms'\n", ["line 1", "refresh", "1s"]),
        ("[aliases]\nx = 'y'\n", ["aliases", "pager"]),
        ("[colours]\n", ["colours"]),
        ("pager = \n", ["line 1"]),
    ],
)
def test_a_wrong_setting_is_an_error_with_line_and_key(text: str, parts: list[str], home: Path) -> None:
    home.mkdir()
    (home / "shell.toml").write_text(text)
    ran = klog("shell", "-e", "echo x")
    assert ran.code == 2 and ran.stdout == ""
    assert all(part in ran.stderr for part in [*parts, str(home / "shell.toml")])


# --- Before Enter -----------------------------------------------------------------------------------------------------


@each(
    ("line", "parts"),
    [
        ("topic describe ", ["topic describe [TOPIC...]", "[FLAGS]"]),
        ("topic ", ["topic create|list"]),
        ("topic create x -p ", ["-p, --partitions N"]),
        ("topic list --output", ["--output FORMAT"]),
        ("use ", ["use [TOPIC|GROUP]"]),
        ("topic list; use ", ["use [TOPIC|GROUP]"]),
        ("", []),
    ],
)
def test_the_usage_of_what_is_typed(line: str, parts: list[str]) -> None:
    found = usage(line)
    assert all(part in found for part in parts) and bool(found) == bool(parts)


@each(
    ("line", "offered"),
    [
        ("tail orders -p ", ["0", "1", "2"]),
        ("tail orders -p 0,", ["0,0", "0,1", "0,2"]),
        ("topic create x --start-broker ", ["1", "2"]),
        ("zk get /br", ["/brokers"]),
        ("zk ls /brokers/", ["/brokers/ids", "/brokers/topics"]),
        ("topic config orders preallocate=", ["preallocate=true", "preallocate=false"]),
        ("\\c st", ["staging"]),
        ("schema get o", ["orders-value"]),
        ("undo mi", ["mifz3k2a9x4q"]),
        ("lag r", ["readers"]),
        ("use ", ["orders", "logs", "readers"]),
        ("topic list --output=js", ["--output=json", "--output=jsonl"]),
        ("export status s3", ["s3://bucket/orders"]),
        ("\\h topic desc", ["describe"]),
        ("topic list; topic desc", ["describe"]),
        ("topic list | gre", []),
        ("sql 'sel", ["select"]),
        ("sql 'SEL", ["SELECT"]),
        ("sql 'select part", ["partition"]),
        ("sql 'select * from ", ["orders", "log_lines"]),
        ('sql "select * from orders join L', ["log_lines"]),
        ("sql 'select * from orders where of", ["offset"]),
        ("sql 'select * from orders where pa", []),
        ("sql --from 'log-lines:json=page string' 'select * from log_lines where pa", ["page"]),
        ("sql \"select * from orders where key = 'of", []),
        ("stream run -e 'select * from o", ["orders"]),
        ("sql 'select 1' --outp", ["--output"]),
        ("topi", ["topic"]),
        ("klog topic des", ["describe"]),
        ("topic create x --part", ["--partitions"]),
        ("produce t --acks a", ["all"]),
        ("help zk tr", ["tree"]),
        ("nonsense ", []),
        ("topic describe lo", ["logs"]),
        ("broker describe ", ["1", "2"]),
        ("exi", ["exit"]),
    ],
)
def test_what_is_offered(line: str, offered: list[str] | None, shell: Shell, names: Live) -> None:
    history = ["export run orders --to s3://bucket/orders --format avro"]
    completer = KlogCompleter(shell.cluster, names, history=lambda: history)
    found = [one.text for one in completer.get_completions(Document(line), CompleteEvent())]
    assert set(found) == set(offered) if offered is not None else "--output" in found


def test_a_name_in_use_is_left_out_of_the_line(shell: Shell, names: Live) -> None:
    completer = KlogCompleter(shell.cluster, names, using=lambda: Using("topic", "orders"))
    offered = [one.text for one in completer.get_completions(Document("topic config preall"), CompleteEvent())]
    assert offered == ["preallocate="]
    assert len(list(completer.get_completions(Document("tail -p "), CompleteEvent()))) == 3


# --- On a cluster -----------------------------------------------------------------------------------------------------


def test_a_name_in_use(broker: RunningBroker, topic: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert klog("topic", "create", topic, "-p", "2", "-B", broker.bootstrap).code == 0
    shell = Shell(GlobalFlags(bootstrap_server=broker.bootstrap))
    out = ran(capfd, shell, f"use {topic}", "topic describe", "topic config retention.ms=1000", "topic config")
    assert out.count(f"{topic} ") >= 2 and "retention.ms" in out
    shell.run_line("topic delete -y")
    assert shell.status == 2  # a name that is deleted is written
    shell.run_line("use no-such-topic")
    assert shell.status == 1 and shell.using is not None
    ran(capfd, shell, "use", f"use topic {topic}")
    shell.cluster.close()


def test_a_connection_outlives_commands_and_is_made_again_after_a_restart(
    make_broker: Callable[..., RunningBroker], capfd: pytest.CaptureFixture[str]
) -> None:
    broker = make_broker().start()
    shell = Shell(GlobalFlags(bootstrap_server=broker.bootstrap, timeout=10.0))
    ran(capfd, shell, "topic create before")
    (cluster,) = shell.cluster.session.clusters
    ran(capfd, shell, "topic list", "zk ls /brokers", "group list")
    assert shell.cluster.session.clusters == [cluster]
    broker.stop()
    broker.start()
    assert "after" in ran(capfd, shell, "topic create after", "topic list", "zk ls /brokers/topics")
    assert shell.cluster.session.clusters != [cluster]
    broker.stop()
    shell.run_line("topic list --timeout 2s")
    assert shell.status == 1
    shell.cluster.close()


# --- The prompt and the toolbar ---------------------------------------------------------------------------------------


def plain(parts: StyleAndTextTuples) -> str:
    return "".join(part[1] for part in parts)


def test_the_prompt_says_where_and_how_it_is() -> None:
    prod = Profile("prod", protected=True, colour="red")
    place, well = Target("h:1", None, "x", profile=prod), ClusterFacts(3, 3, 1)
    assert plain(bar.prompt(None, None)) == "klog> " and plain(bar.prompt(place, None)) == "prod> "
    assert plain(bar.prompt(place, well)) == "prod 3/3 urp:0> "
    assert bar.prompt(place, well)[0] == ("bold ansired", "prod")
    ill = ClusterFacts(2, 3, None, under_replicated=7, offline=1)
    assert plain(bar.prompt(place, ill, using="orders")) == "prod orders 2/3 urp:7 offline:1> "
    shown = bar.toolbar(place, ill, LastCommand(1, 12.3), lag=WorstLag("g", 1200))
    for part in ("controller -", "under-replicated 7", "worst lag 1,200 g", "12 ms", "exit 1", "protected", "h:1"):
        assert part in shown
    assert "unreachable" in plain(bar.prompt(place, ClusterFacts(trouble="gone")))
    assert "gone" in bar.toolbar(place, ClusterFacts(trouble="gone"), None)


def test_names_of_others_do_not_command_the_terminal() -> None:
    place, facts, lag = Target("\x1b[2J", None, "x\x1b]0;t\x07"), ClusterFacts(1, 1, 1), WorstLag("g\x9b" * 99, 1)
    text = plain(bar.prompt(place, facts, using="\x1b[31m" * 50)) + bar.toolbar(place, facts, None, lag=lag)
    assert not set(text) & {"\x1b", "\x07", "\x9b", "\u202e"} and len(text) < 500


# --- Facts ------------------------------------------------------------------------------------------------------------


def test_facts_of_a_cluster_that_was_left_are_not_shown_for_the_next_one() -> None:
    asked, go, answers = threading.Event(), threading.Event(), iter([ClusterFacts(1), ClusterFacts(2)])
    changed = threading.Semaphore(0)

    def fetch(kind: str, about: str) -> ClusterFacts:
        found = next(answers)
        asked.set()
        assert go.wait(10)
        return found

    live = Live(fetch, changed=changed.release)
    assert not live.now("facts") and asked.wait(10)
    live.forget()  # while the first one is being asked
    go.set()
    assert changed.acquire(timeout=10) and not live.now("facts")
    assert changed.acquire(timeout=10) and live.now("facts") == ClusterFacts(2)


def test_what_is_longer_than_the_screen_goes_through_the_pager(capfd: pytest.CaptureFixture[str]) -> None:
    screen = Screen(pager="sed s/^/paged:/", size=lambda: os.terminal_size((80, 5)))
    screen.write("1\n2\n")
    screen.write("1\n2\n3\n4\n5\n")
    assert capfd.readouterr().out == "1\n2\n" + "".join(f"paged:{number}\n" for number in range(1, 6))
    with screen.without_pages():
        screen.write("1\n2\n3\n4\n5\n")
    assert "paged" not in capfd.readouterr().out
    Screen(pager="true", size=lambda: os.terminal_size((80, 5))).write("x\n" * 100_000)


def test_without_its_pager_the_output_is_shown_all_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    Screen(pager="no-such-pager-1234", size=lambda: os.terminal_size((80, 5))).write("x\n" * 10)
    shown = capfd.readouterr()
    assert "no-such-pager-1234" in shown.err and shown.out == "x\n" * 10
