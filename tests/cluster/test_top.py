"""Goal: `klog top` shows a cluster as it is, on a real terminal of 80x24.

Method: real brokers; the screen is drawn by pyte.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from tests.cli.process import on_terminal
from tests.cli.runner import klog
from tests.cluster_fixture import RunningCluster
from tests.tools.verbs import send

LEFT_THE_SCREEN = "\x1b[?1049l"


def test_on_a_terminal(make_cluster: Callable[..., RunningCluster], topic: str) -> None:
    three = make_cluster(3).start()  # of its own: topics of other tests would fill the screen
    three.create(topic, 2)
    send(three.bootstrap, topic, b"0123456789\n" * 500)
    group = f"g-{topic}"
    assert (
        klog("group", "rewind", group, "--to", "start", "-t", topic, "--create", "-y", "-B", three.bootstrap).code == 0
    )
    with on_terminal("top", "-B", three.bootstrap, "--every", "200ms", rows=24, columns=80) as (process, terminal):
        terminal.wait_to_show("3/3 brokers")
        for wanted in (topic[:20], group[:20], "IN TROUBLE", "EVENT", "q leave"):
            terminal.wait_to_show(wanted)
        terminal.type("\r")
        terminal.wait_to_show("kafka_")
        terminal.type("\x1b")
        terminal.wait_to_show("Tab pane")
        terminal.type(f"\t\t\t/{group}\r\r")
        shown = terminal.wait_to_show("OWNER")
        assert f"group {group}" in shown.text and topic in shown.text
        terminal.type("\x1b")
        terminal.wait_to_show("Tab pane")
        terminal.type("\x1b")
        terminal.wait_until(lambda screen: "only" not in screen.text, "every row")
        three.kill(3)
        shown = terminal.wait_to_show("not in sync: 3")
        terminal.wait_to_show("broker-down")
        terminal.wait_to_show("dead")
        terminal.type(f"\t\t\t/{topic}\rw")  # from the groups to the topics
        terminal.wait_to_show(f"why topic {topic}")
        shown = terminal.wait_to_show("what helps: start broker 3")
        assert f"{topic}-0" in shown.text and "broker 3 is dead" in shown.text
        terminal.type("\x1b")
        terminal.wait_to_show("Tab pane")
        terminal.type("\x1b")
        terminal.wait_until(lambda screen: "only" not in screen.text, "every row")
        three.start(3)
        terminal.wait_to_show("3/3 brokers")
        terminal.resize(132, 50)
        terminal.wait_until(lambda screen: len(screen.lines) == 50 and "q leave" in screen.lines[-1], "all 50 lines")
        terminal.type("q")
        terminal.read_to_end()
        assert process.wait(20) == 0
        assert LEFT_THE_SCREEN in terminal.text


def test_a_signal_gives_the_terminal_back(three: RunningCluster) -> None:
    with on_terminal("top", "-B", three.bootstrap, rows=24, columns=80) as (process, terminal):
        terminal.wait_to_show("3/3 brokers")
        process.send_signal(signal.SIGTERM)
        terminal.read_to_end()
        assert process.wait(20) == 143
        assert LEFT_THE_SCREEN in terminal.text
