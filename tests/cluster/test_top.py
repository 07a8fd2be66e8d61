"""Goal: `klog top` shows a cluster as it is, on a real terminal of 80x24 and in a pipe, and outlives the cluster.

Method: real brokers; the screen is drawn by pyte.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from tests.cli.runner import klog
from tests.cli.screen import on_screen
from tests.cluster_fixture import RunningCluster
from tests.tools.verbs import send

LEFT_THE_SCREEN = b"\x1b[?1049l"


def test_on_a_terminal(make_cluster: Callable[..., RunningCluster], topic: str) -> None:
    three = make_cluster(3).start()  # of its own: topics of other tests would fill the screen
    three.create(topic, 2)
    send(three.bootstrap, topic, b"0123456789\n" * 500)
    group = f"g-{topic}"
    assert (
        klog("group", "rewind", group, "--to", "start", "-t", topic, "--create", "-y", "-B", three.bootstrap).code == 0
    )
    with on_screen("top", "-B", three.bootstrap, "--every", "200ms") as (process, screen):
        screen.wait_for("3/3 brokers")
        for wanted in (topic[:20], group[:20], "IN TROUBLE", "EVENT", "q leave"):
            screen.wait_for(wanted)
        screen.type("\r")
        screen.wait_for("kafka_")
        screen.type("\x1b")
        screen.wait_for("Tab pane")
        screen.type(f"\t\t\t/{group}\r\r")
        shown = screen.wait_for("OWNER")
        assert f"group {group}" in shown and topic in shown
        screen.type("\x1b")
        screen.wait_for("Tab pane")
        screen.type("\x1b")
        screen.wait_for(lambda text: "only" not in text)
        three.kill(3)
        shown = screen.wait_for("not in sync: 3")
        screen.wait_for("broker-down")
        screen.wait_for("dead")
        screen.type(f"\t\t\t/{topic}\rw")  # from the groups to the topics
        screen.wait_for(f"why topic {topic}")
        shown = screen.wait_for("what helps: start broker 3")
        assert f"{topic}-0" in shown and "broker 3 is dead" in shown
        screen.type("\x1b")
        screen.wait_for("Tab pane")
        screen.type("\x1b")
        screen.wait_for(lambda text: "only" not in text)
        three.start(3)
        screen.wait_for("3/3 brokers")
        screen.resize(132, 50)
        screen.wait_for(lambda text: len(text.splitlines()) == 50 and "q leave" in text.splitlines()[-1])
        screen.type("q")
        assert screen.read_to_end(process) == 0
        assert LEFT_THE_SCREEN in screen.raw


def test_signals_give_the_terminal_back(three: RunningCluster) -> None:
    ways: list[tuple[Callable[..., object], int]] = [
        (lambda process, screen: screen.type("\x03"), 130),
        (lambda process, screen: process.send_signal(signal.SIGTERM), 143),
    ]
    for stop, code in ways:
        with on_screen("top", "-B", three.bootstrap) as (process, screen):
            screen.wait_for("3/3 brokers")
            stop(process, screen)
            assert screen.read_to_end(process) == code
            assert LEFT_THE_SCREEN in screen.raw
