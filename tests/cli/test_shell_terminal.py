"""The shell as a person sees it: on a terminal, with a real broker."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from klog.cli.flags import GlobalFlags
from klog.cli.shell.shell import Shell
from tests.broker_fixture import RunningBroker
from tests.cli.process import on_terminal
from tests.cli.runner import klog


def profiles(home: Path, **addresses: str) -> None:
    home.mkdir(exist_ok=True)
    (home / "shell.toml").write_text('refresh = "1s"\n')
    for name, address in addresses.items():
        assert klog("profile", "add", name, "-B", address).code == 0
        assert klog("profile", "set", name, "colour=red").code == 0


def test_the_prompt_follows_the_cluster_and_keeps_what_is_typed(
    make_broker: Callable[..., RunningBroker], home: Path
) -> None:
    broker = make_broker().start()
    profiles(home, prod=broker.bootstrap)
    with on_terminal("shell", "--profile", "prod") as (process, terminal):
        shown = terminal.wait_to_show("prod 1/1 urp:0>")
        assert any(run.startswith("prod") for run in shown.coloured(lambda colour: colour == "red"))
        terminal.wait_to_show("controller 1  under-replicated 0  worst lag 0")
        terminal.type("topic li")
        terminal.wait_to_show("urp:0> topic li")
        broker.stop()
        terminal.wait_to_show("prod unreachable> topic li")
        broker.start()
        terminal.wait_to_show("prod 1/1 urp:0> topic li")
        terminal.type("st\r")
        terminal.wait_to_show("exit 0")
        terminal.type("\\c nowhere\r")
        terminal.wait_to_show("profile 'nowhere'")
        terminal.wait_to_show("exit 1")
        terminal.type("\x04")
        assert process.wait(20) == 1


def test_completion_suggestion_and_usage(broker: RunningBroker, topic: str, home: Path) -> None:
    assert klog("topic", "create", topic, "-p", "3", "-B", broker.bootstrap).code == 0
    with on_terminal("shell", "-B", broker.bootstrap) as (_, terminal):
        terminal.wait_to_show("1/1 urp:")
        terminal.type("topic desc")
        terminal.wait_to_show("describe  Show the partitions")  # in the menu, without Tab
        terminal.type(f"\t {topic[:-2]}")
        terminal.wait_to_show("topic describe [TOPIC...] [FLAGS]: Show")
        terminal.wait_to_show(f"{topic}  topic")
        terminal.type("\t -o json | head -c 20; echo\r")
        terminal.wait_to_show('{"_command": "topic.')
        terminal.type("topic desc")
        terminal.wait_until(
            lambda screen: any("head -c 20" in run for run in screen.coloured(lambda colour: len(colour) == 6)),
            "the suggestion",
        )
        terminal.type("\x05\r")  # Ctrl-E takes it
        terminal.wait_until(lambda screen: screen.text.count('{"_command": "topic.') == 2, "the same output")
        terminal.type(f"tail {topic} -o start\r")
        assert klog("produce", topic, "-B", broker.bootstrap, input="seen in the shell\n").code == 0
        terminal.wait_to_show("seen in the shell")
        terminal.type("\x03")  # ends tail, not the shell
        terminal.wait_to_show("exit 130")
        terminal.type(f"tail {topic} -p ")
        terminal.wait_until(lambda screen: re.search("0 +partitions?\n.*1 +partition", screen.text) is not None, "two")
        terminal.type("\x15exit\r")


def test_lines_that_go_on_and_commands_that_are_ended(broker: RunningBroker, home: Path) -> None:
    with on_terminal("shell", "-B", broker.bootstrap) as (process, terminal):
        terminal.wait_to_show("1/1 urp:")
        terminal.type("echo 'one\r")
        terminal.wait_to_show("\n...")
        terminal.type("two'; echo three \\\rfour\r")
        terminal.wait_to_show("one\ntwo\nthree four\n")
        terminal.wait_to_show("exit 0")
        terminal.type("! echo $((6*7)); exec cat\r")
        terminal.wait_to_show("\n42\n")
        terminal.type("echoed\r")
        terminal.wait_to_show("\nechoed\nechoed\n")  # cat runs: dash may lose a signal while it starts a command
        terminal.type("\x03")
        terminal.wait_to_show("exit 130")
        terminal.type("echo round \\watch 100ms\r")
        terminal.wait_until(lambda screen: screen.text.count("\nround") >= 3, "three rounds")
        terminal.type("\x03")
        terminal.wait_to_show("exit 0")
        terminal.type("lag --watch\r")
        terminal.wait_to_show("OWNER")
        terminal.type("\x03")  # in the middle of the event loop that is kept
        terminal.wait_to_show("exit 130")
        terminal.type("zk get /controller\r")
        terminal.wait_to_show("exit 0")
        terminal.type("exit\r")
        assert process.wait(20) == 0, terminal.screen.text


def test_on_a_small_screen_rows_fit_and_are_pages(broker: RunningBroker, home: Path) -> None:
    with on_terminal("shell", "-B", broker.bootstrap, rows=24, columns=60) as (_, terminal):
        terminal.wait_to_show("1/1 urp:")
        terminal.type("broker list\r")
        terminal.wait_to_show("BROKER  HOST")
        terminal.type("broker config 1\r")
        terminal.wait_until(lambda _: terminal.text.endswith(":\x1b[K"), "less, waiting")
        terminal.type("q")
        terminal.wait_to_show("urp:0>")
        terminal.type("exit\r")


def test_ctrl_c_in_the_pager_is_the_pagers(home: Path) -> None:
    home.mkdir()
    pager = "cat > /dev/null; echo ready; exec cat < /dev/tty"
    (home / "shell.toml").write_text(f'pager = "{pager}"\n')
    profiles = "".join(f'[p{number}]\nbootstrap_server = "h:1"\n' for number in range(50))
    (home / "profiles.toml").write_text(profiles)
    with on_terminal("shell", rows=24) as (process, terminal):
        terminal.wait_to_show("klog>")
        terminal.type("profile list\r")
        terminal.wait_to_show("ready")
        terminal.type("echoed\r")
        terminal.wait_to_show("\nechoed\nechoed\n")
        terminal.type("\x03")
        terminal.wait_to_show("exit 0")
        terminal.type("exit\r")
        assert process.wait(20) == 0


@pytest.mark.timed
def test_a_warm_command_is_quick(broker: RunningBroker) -> None:
    shell, took = Shell(GlobalFlags(bootstrap_server=broker.bootstrap)), list[float]()
    for _ in range(10):
        shell.run_line("topic list")
        assert shell.status == 0 and shell.last is not None
        took.append(shell.last.ms)
    shell.cluster.close()
    assert min(took[1:]) < 50
