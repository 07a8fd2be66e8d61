"""`klog broker start --processes`: several brokers under one parent, on hosts that fail as a whole."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from bench.processes import ports_in_a_row
from klog.coordination.process import ProcessId
from klog.server.processes import MODULE
from tests.broker_fixture import RunningBroker
from tests.cli.runner import act_rows, klog
from tests.tools.verbs import make_topic, send
from tests.until import until

WITHIN_S = 20.0


def children(parent: RunningBroker) -> dict[int, ProcessId]:
    """Broker id -> its process."""
    found = {}
    for one in psutil.Process(parent.pid).children():
        words, identity = one.cmdline(), ProcessId.of(one.pid)
        if MODULE in words and identity is not None:
            found[int(words[words.index(MODULE) + 1])] = identity
    return found


def live(bootstrap: str) -> dict[int, tuple[str, int]]:
    """Broker id -> host and incarnation."""
    rows = klog("broker", "list", "-o", "json", "-B", bootstrap).rows
    return {row["broker"]: (row["host"], row["incarnation"]) for row in rows if row["incarnation"] is not None}


def several(
    make_broker: Callable[..., RunningBroker], count: int, broker_id: int = 1, **settings: str
) -> RunningBroker:
    parent = make_broker(broker_id, **settings)
    parent.extra_arguments = ["--processes", str(count)]
    return parent


def test_each_is_kept_alive_until_it_is_asked_to_stop(make_broker: Callable[..., RunningBroker]) -> None:
    parent = several(make_broker, 2).start()
    first = parent.bootstrap.split(",")[0]
    before, processes = live(first), children(parent)
    assert before.keys() == processes.keys() == {1, 2}
    for one in processes.values():
        assert parent.zookeeper not in " ".join(psutil.Process(one.pid).cmdline()), "settings stay out of `ps`"

    assert processes[2].send(signal.SIGKILL)
    parent.wait_for_log("ERROR", "processes", "broker 2", "SIGKILL")
    until(lambda: live(first).get(2, before[2]) != before[2], lambda: parent.log_text)

    assert klog("broker", "restart", 2, "-B", first, "-o", "json").rows[0]["restarted"]
    assert klog("broker", "stop", 2, "-B", first).code == 0
    until(lambda: live(first).keys() == {1}, lambda: parent.log_text)

    assert parent.stop() == 0, parent.log_text
    assert parent.logged("INFO", "broker 1:", "stopped") and parent.logged("INFO", "broker 2:", "stopped")
    assert not parent.logged("broker 1:", "lost"), parent.log_text
    last, *_ = (line for line in reversed(parent.log_text.splitlines()) if "stopped" in line)
    assert "broker 1:" in last, "from the last to the first"


@pytest.mark.long("test_each_is_kept_alive_until_it_is_asked_to_stop")
def test_they_stop_when_their_parent_is_killed(make_broker: Callable[..., RunningBroker]) -> None:
    parent = several(make_broker, 2).start()
    topic = "kept"
    make_topic(parent.bootstrap, topic, 4)
    assert send(parent.bootstrap, topic, b"a\nb\nc\n").is_complete
    processes = children(parent)
    parent.kill()
    for one in processes.values():
        assert one.wait(WITHIN_S), parent.log_text
    assert parent.logged("broker 2:", "stopped") and parent.logged("broker 1:", "stopped")

    parent.listen = "127.0.0.1:0"
    parent.start()
    assert sorted(klog("tail", topic, "-o", "start", "-e", "-q", "-B", parent.bootstrap).stdout.split()) == [
        "a",
        "b",
        "c",
    ]


def test_one_that_cannot_start_ends_all(make_broker: Callable[..., RunningBroker]) -> None:
    with socket.socket() as taken:
        first = ports_in_a_row(2)
        taken.bind(("127.0.0.1", first + 1))
        taken.listen()
        parent = several(make_broker, 2)
        parent.listen = f"127.0.0.1:{first}"
        parent.start(expect_ready=False)
        assert parent.process is not None and parent.process.wait(WITHIN_S) == 1
    assert parent.logged("ERROR", "processes", "broker 2")
    with pytest.raises(OSError):  # broker 1 ended with the other one, however far it had come
        socket.create_connection(("127.0.0.1", first), timeout=5)


@pytest.mark.long("test_each_is_kept_alive_until_it_is_asked_to_stop")
def test_a_broker_alone_restarts_in_its_process(make_broker: Callable[..., RunningBroker]) -> None:
    one = make_broker().start()
    one.stop()
    one.start()  # on a port that is named, as it restarts with the same words
    make_topic(one.bootstrap, "alone", 3)
    before, pid = live(one.bootstrap), one.pid
    (row,) = klog("broker", "restart", 1, "-B", one.bootstrap, "-o", "json").rows
    assert (row["restarted"], row["alone"] >= 3, row["error"]) == (True, True, None)
    assert one.process is not None and one.process.poll() is None and one.pid == pid
    assert live(one.bootstrap).keys() == {1} and live(one.bootstrap) != before
    (act,) = (row for row in act_rows(one.zookeeper) if row["kind"] == "broker-restart")
    assert klog("undo", act["act"], "-B", one.bootstrap, "--yes").code == 1
    assert one.stop() == 0


@pytest.mark.long("hosts of two processes")
def test_hosts_fail_as_a_whole(make_broker: Callable[..., RunningBroker], tmp_path: Path) -> None:
    """Two hosts with two brokers each: replicas are spread over them, one restarts, one is emptied, one dies."""
    spread = {"default__replication__factor": "2", "min__insync__replicas": "1"}
    one, two = several(make_broker, 2, 1, **spread).start(), several(make_broker, 2, 11, **spread)
    two.listen = "127.0.0.2:0"
    two.start()
    at = ("-B", one.bootstrap.split(",")[0], "-o", "json")
    hosts = {broker: host for broker, (host, _) in live(one.bootstrap).items()}
    assert hosts == {1: "127.0.0.1", 2: "127.0.0.1", 11: "127.0.0.2", 12: "127.0.0.2"}
    assert [row["broker"] for row in klog("broker", "list", "--host", "127.0.0.2", *at).rows] == [11, 12]

    make_topic(one.bootstrap, "spread", 8)
    assert send(one.bootstrap, "spread", b"".join(b"%d\n" % number for number in range(500))).is_complete

    def used() -> list[set[str]]:
        return [{hosts[broker] for broker in row["replicas"]} for row in klog("topic", "describe", "spread", *at).rows]

    assert used() == [{"127.0.0.1", "127.0.0.2"}] * 8
    rows = klog("broker", "restart", "--host", "127.0.0.2", *at).rows
    assert [(row["broker"], row["restarted"], row["alone"]) for row in rows] == [(11, True, 0), (12, True, 0)]

    # What shares a host is found, and a plan spreads it.
    assert klog("topic", "create", "crowded", "--assignment", "1:2,11:1", "-X", "min.insync.replicas=2", *at).code == 0
    (found,) = (row for row in klog("status", "topics", *at).rows if row["kind"] == "shared-hosts")
    assert found["what"] == "topic crowded"
    file = tmp_path / "plan.json"
    assert klog("reassign", "plan", "--topics", "crowded", "--file", file, *at).code == 0
    assert klog("reassign", "execute", file, "--wait", "20s", "--yes", *at).code == 0
    assert klog("status", "topics", "--wait", "20s", *at).code == 0

    # All of a host at once.
    victims = [*children(two).values()]
    two.send(signal.SIGSTOP)  # it starts none again meanwhile
    for victim in victims:
        os.kill(victim.pid, signal.SIGKILL)
    two.kill()
    until(
        lambda: {row["leader"] for row in klog("topic", "describe", "spread", *at).rows} <= {1, 2},
        lambda: one.log_text,
    )
    assert klog("topic", "describe", "spread", "--offline", *at).rows == []
    got = klog("tail", "spread", "-o", "start", "-e", "-q", "-B", one.bootstrap).stdout.split()
    assert sorted(map(int, got)) == list(range(500))

    emptying = ("reassign", "plan", "--remove-host", "127.0.0.2")
    until(lambda: klog(*emptying, *at).code == 1, lambda: one.log_text)
    assert "127.0.0.2" in klog(*emptying, *at).error["message"]
    two.listen = "127.0.0.2:0"
    two.start()
    planned = klog(*emptying, "--topics", "spread", *at).rows
    assert {broker for row in planned for broker in row["to"]} == {1, 2}
