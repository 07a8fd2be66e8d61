"""Goal: a long command says how far it is on a terminal, and nothing in a pipe. Method: real brokers, both ways."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from threading import Semaphore
from types import SimpleNamespace
from unittest.mock import patch

from klog.cli.flags import GlobalFlags
from klog.cli.progress import EVERY_S, Done, Drawing, line, progress, slow_progress
from tests.cli.process import Shown, on_terminal, started
from tests.cli.runner import klog
from tests.cluster_fixture import RunningCluster
from tests.rows import each
from tests.tools.verbs import send


@each(("found", "since", "seconds", "unit", "wanted"), [
    (Done(20e6, 80e6), 10e6, 5.0, "bytes", "20 MB of 80 MB, 25%, 2 MB/s, 30 s left"),
    (Done(500, 1000), 500, 10.0, "messages", "500 of 1 k messages, 50%, 50/s, 10 s left"),
    (Done(0, 1000), 0, 0.0, "messages", "0 of 1 k messages, 0%"),
    (Done(500, None), 500, 10.0, "bytes", "500 B, 50 B/s"),
    (Done(5, 0), 5, 1.0, "messages", "5 messages, 5/s, 0 ms left"),
    (Done(1, 3, "broker 2 starts"), 1, 4.0, "brokers", "1 of 3 brokers, 33%, 8 s left, broker 2 starts"),
    (Done(0, 3), 0, 4.2, "brokers", "0 of 3 brokers, 0%, 4 s so far"),
    (Done(9, 8), 9, 1.0, "messages", "9 of 8 messages, 100%, 9/s, 0 ms left"),
])  # fmt: skip
def test_the_line(found: Done, since: float, seconds: float, unit: str, wanted: str) -> None:
    assert line(found, since, seconds, unit) == wanted


class Screen(Drawing):
    """A terminal, of which the lines are kept."""

    can_draw = True

    def __init__(self) -> None:
        super().__init__(GlobalFlags())
        self.lines: list[str] = []

    def draw_line(self, text: str) -> None:
        self.lines.append(text)


def test_an_answer_that_does_not_come_holds_nothing_up() -> None:
    screen, asked, answer = Screen(), Semaphore(0), Semaphore(0)

    def measure() -> Done:
        asked.release()
        answer.acquire()
        return Done(1, 4)

    with slow_progress(screen, measure, unit="messages"):
        assert asked.acquire(timeout=10) and screen.measured is not None
        assert screen.measured.measure() is None
        screen.draw_progress(0)
        assert not asked.acquire(timeout=3 * EVERY_S), "while an answer is to come it is not asked again"
        answer.release()
        assert asked.acquire(timeout=10)  # the second time, which is not answered
        assert screen.measured.measure() == Done(1, 4)
    answer.release()
    assert not asked.acquire(timeout=3 * EVERY_S), "nor is it asked when all is over"


def test_the_rate_counts_from_where_the_work_begins() -> None:
    screen = Screen()
    now = iter([20, 30, 40])
    shown = iter([Done(0, 1000, "starting", has_begun=False), Done(100, 1000), Done(300, 1000)])
    with (
        patch("klog.cli.progress.time", SimpleNamespace(monotonic=lambda: next(now))),
        progress(screen, lambda: next(shown), unit="messages"),
    ):
        assert screen.measured is not None
        screen.measured.begun_s = 0
        for _ in range(3):
            screen.draw_progress(0)
    assert screen.lines == [
        "0 of 1 k messages, 0%, 20 s so far, starting",
        "100 of 1 k messages, 10%",
        "300 of 1 k messages, 30%, 20/s, 35 s left",
    ]


def test_a_reassignment_that_is_waited_for(three: RunningCluster, topic: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    three.create(topic, partitions=2, factor=1)
    send(three.bootstrap, topic, b"".join(b"%01000d\n" % number for number in range(3000)), batch_messages=50)
    assert klog("reassign", "plan", "--topics", topic, "--replication-factor", 3, "--file", plan, *at(three)).code == 0
    words = ["reassign", "execute", str(plan), "--throttle", "500KB/s", "--wait", "30s", "--yes", *at(three)]
    with on_terminal(*words, rows=24, columns=100) as (process, terminal):
        terminal.wait_until(shows(" MB of ", "/s", " left", "of 2 part"), "how far it is")
        terminal.read_to_end()
        assert process.wait(20) == 0
        assert " left" not in terminal.screen.text


def test_what_counts_nothing_is_at_work() -> None:
    """A broker that takes connections and answers nothing: the command waits, and a person sees that it does."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = ["topic", "list", "-B", f"127.0.0.1:{silent.getsockname()[1]}"]
        with on_terminal(*words, rows=24, columns=80) as (process, terminal):
            terminal.wait_to_show("at work, 2 s")
            terminal.read_to_end()
            assert process.wait(20) == 1
            assert "at work" not in terminal.screen.text
        with started(*words) as process:
            _, said = process.communicate(timeout=30)
        assert process.returncode == 1 and b"at work" not in said


def shows(*wanted: str) -> Callable[[Shown], bool]:
    return lambda screen: all(text in screen.text for text in wanted)


def at(cluster: RunningCluster) -> tuple[str, str]:
    return "-B", cluster.bootstrap
