"""Faults that clients make. Each begins where its context is entered, and is ended and judged where that is left.

AssertionError: others noticed it, or what is refused elsewhere was done here.
"""

from __future__ import annotations

import itertools
import random
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from klog.client.blocking import BlockingChannel
from klog.client.positions import LATEST
from klog.client.raw_fetch import RawCluster
from klog.coordination.server_size import server_size
from klog.errors import CoordinatorNotAvailable, NotCoordinator, PolicyViolation
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.record.provenance_header import Marker, Source
from klog.record.records import Record
from tests.broker_fixture import ROOT, RunningBroker
from tests.cli.process import CLOSED_PIPE, started, unwritable
from tests.faults.cluster import FaultCluster, Node
from tests.faults.network import HOST
from tests.server.asking import FIRST_MS, ask, commit, create, produce
from tests.server.wire import ASKED
from tests.tools.copies import everything, values

if TYPE_CHECKING:
    from tests.faults.injection import Injection

CROWD = 300
"""Connections to each broker."""
CROWD_ADDRESS = "127.0.0.2"
"""Clients, brokers and proxies have another one."""
SENT_MIN_BYTES = 1_000_000
METADATA = "m" * 4000
FULL_WITHIN_S = 120.0
SHARE_MAX = 0.8
"""Of ZooKeeper's heap: where brokers refuse is below it."""
FORGED = b"forged"
FORGE_EVERY_S = 0.1
COPIED_WITHIN_S = 60.0


@contextmanager
def _leaders_stay(injection: Injection) -> Iterator[None]:
    cluster, topic = injection.cluster, injection.topic
    numbers = range(len(cluster.topic_entry(topic)["partitions"]))
    before = [cluster.state(topic, number)[0] for number in numbers]
    yield
    after = [cluster.state(topic, number)[0] for number in numbers]
    assert after == before, f"leaders moved from {before} to {after}"


@contextmanager
def crowd(injection: Injection) -> Iterator[None]:
    """Behind the proxies, which would be what it stops."""
    request = b"".join(ASKED.values()).hex()
    with ExitStack() as stack:
        stack.enter_context(_leaders_stay(injection))
        crowds = []
        for broker_id in injection.brokers:
            address = f"{HOST}:{injection.cluster.nodes[broker_id].gate.target_port}"
            words = [address, str(CROWD), "3600", request, CROWD_ADDRESS]
            command = [sys.executable, "-m", "tests.server.crowd", *words]
            one = stack.enter_context(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE))
            stack.callback(one.kill)
            crowds.append(one)
        yield
        for one in crowds:
            one.terminate()
        sent = [int(one.communicate(timeout=30)[0] or 0) for one in crowds]
        injection.seen = f"{', '.join(f'{count / 1e6:.1f}' for count in sent)} MB sent"
        assert min(sent) > SENT_MIN_BYTES, f"a crowd sent {min(sent)} bytes"


@contextmanager
def full_heap(injection: Injection) -> Iterator[None]:
    """Groups commit to all partitions of the topic, until a broker refuses one for the room that it takes."""
    cluster, topic = injection.cluster, injection.topic
    partitions = len(cluster.topic_entry(topic)["partitions"])
    let_in: list[int] = []
    refused = threading.Event()

    def fill(node: Node, stop: threading.Event) -> None:
        with closing(BlockingChannel.connect(HOST, node.gate.port, timeout_s=30)) as channel:
            for number in itertools.count():
                if stop.wait(0.1 if refused.is_set() else 0):
                    return
                code = commit(channel, f"full-{node.name}-{number}", topic, partitions, METADATA)
                if code == 0:
                    let_in.append(number)
                elif code == PolicyViolation.wire:
                    refused.set()
                else:  # another broker coordinates this group
                    assert code in (NotCoordinator.wire, CoordinatorNotAvailable.wire), code

    server = cluster.zookeeper_server
    with ExitStack() as stack:
        stack.enter_context(_leaders_stay(injection))
        for node in cluster.nodes.values():
            stack.enter_context(_beside(partial(fill, node)))
        yield
        assert refused.wait(FULL_WITHIN_S), f"{len(let_in)} groups have committed, and none was refused"
    share = server_size(HOST, server.port, 5.0).share()
    injection.seen = f"{len(let_in)} groups let in, {share:.2f} of the heap kept"
    assert share is not None and share < SHARE_MAX, injection.seen
    assert server.identity.is_alive(), "ZooKeeper has ended"


@contextmanager
def forged_copy(injection: Injection) -> Iterator[None]:
    """Somebody writes headers of copies into the target: of messages that are not copied yet, or will never be."""
    cluster, topic = injection.cluster, injection.topic
    address = f"{HOST}:{cluster.nodes[1].gate.port}"
    whose = ask(address, ApiKey.METADATA, 7, topics=[], allow_auto_topic_creation=False).cluster_id
    draw = random.Random(injection.draw.random())
    forged: list[int] = []
    with _target(injection) as target:
        partitions = len(cluster.topic_entry(topic)["partitions"])

        def forge(stop: threading.Event) -> None:
            with RawCluster(cluster.bootstrap) as source:
                while not stop.wait(FORGE_EVERY_S):
                    one = TopicPartition(topic, draw.randrange(partitions))
                    offset = draw.randrange(2 * source.offsets({one: LATEST})[one])
                    header = Marker(Source(whose, *one)).header(offset)
                    record = Record(0, FIRST_MS, None, FORGED, (header,))
                    produce(target.bootstrap, topic, [[record]], one.partition)
                    forged.append(offset)

        with _beside(forge):
            said = target.folder / "mirror.log"
            with (
                said.open("wb") as log,
                started(*_mirror(cluster, target, topic), stdout=subprocess.DEVNULL, stderr=log) as mirror,
            ):
                yield
                _await_copies(mirror, target, topic)
                assert mirror.poll() is None, said.read_text()
                mirror.kill()
            copied = _copied_to_the_end(cluster, target, topic)
    injection.seen = f"{len(forged)} headers forged, {copied} messages copied, each once"


@contextmanager
def closed_pipe(injection: Injection) -> Iterator[None]:
    """Of a mirror's stderr all the time, and of the stdout of a group's reader."""
    cluster, topic = injection.cluster, injection.topic
    group = ("tail", "-B", cluster.bootstrap, topic, "-G", "closed-pipe", "-o", "start", "-e")
    with ExitStack() as stack:
        target = stack.enter_context(_target(injection))
        nowhere = stack.enter_context(unwritable(CLOSED_PIPE))
        mirror = stack.enter_context(
            started(*_mirror(cluster, target, topic), stdout=subprocess.DEVNULL, stderr=nowhere)
        )
        tail = stack.enter_context(started(*group, stdout=nowhere))
        yield
        _, said = tail.communicate(timeout=COPIED_WITHIN_S)
        assert tail.returncode == 0, said  # as in front of `head`: its reader has seen enough
        _await_copies(mirror, target, topic)
        assert mirror.poll() is None, f"the mirror ended with {mirror.returncode}"
        mirror.terminate()
        assert mirror.wait(COPIED_WITHIN_S) == 0, mirror.returncode
        copied = _copied_to_the_end(cluster, target, topic)
        before = sum(map(len, everything(cluster.bootstrap, topic).values()))
        with started(*group) as again:
            shown, said = again.communicate(timeout=COPIED_WITHIN_S)
        read = shown.split()
        assert len(read) == len(set(read)) >= before, f"{len(read)} of {before} messages were left: {said!r}"
        injection.seen = f"{copied} messages copied, each once; {len(read)} left for the group"


@contextmanager
def _beside(act: Callable[[threading.Event], None]) -> Iterator[None]:
    """It goes on in a thread until it is told to stop; what it fails with is raised in the end."""
    stop = threading.Event()
    failed: list[Exception] = []

    def run() -> None:
        try:
            act(stop)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        assert not failed, failed


# --- A mirror -------------------------------------------------------------------------------------------------------


@contextmanager
def _target(injection: Injection) -> Iterator[RunningBroker]:
    """A cluster of one broker with the same ZooKeeper, and the topic in it."""
    cluster = injection.cluster
    folder = cluster.folder / f"target-{secrets.token_hex(4)}"
    broker = RunningBroker(folder, f"{cluster.zookeeper_server.address}/{folder.name}")
    try:
        broker.start()
        create(broker.bootstrap, injection.topic, len(cluster.topic_entry(injection.topic)["partitions"]))
        yield broker
    finally:
        broker.end()


def _mirror(cluster: FaultCluster, target: RunningBroker, topic: str) -> tuple[str, ...]:
    sides = ("--source", cluster.bootstrap, "--target", target.bootstrap)
    return ("mirror", *sides, "--topic", topic, "--timeout", "20s")


def _await_copies(mirror: subprocess.Popen[bytes], target: RunningBroker, topic: str) -> None:
    """Until it is at work, or has ended."""
    deadline = time.monotonic() + COPIED_WITHIN_S
    while mirror.poll() is None:
        if any(set(values(rows)) - {FORGED} for rows in everything(target.bootstrap, topic).values()):
            return
        assert time.monotonic() < deadline, "the mirror copies nothing"
        time.sleep(0.2)


def _copied_to_the_end(cluster: FaultCluster, target: RunningBroker, topic: str) -> int:
    """Run the mirror once more: what the source had when that began is in the target, once and in order; how many."""
    had = everything(cluster.bootstrap, topic)
    with started(*_mirror(cluster, target, topic), "--once", stdout=subprocess.DEVNULL) as mirror:
        _, said = mirror.communicate(timeout=COPIED_WITHIN_S)
        assert mirror.returncode == 0, said
    has, copies = everything(cluster.bootstrap, topic), everything(target.bootstrap, topic)
    for number, rows in has.items():
        copied = [one for one in values(copies[number]) if one != FORGED]
        assert len(copied) >= len(had[number]), f"partition {number}: {len(copied)} copies of {len(had[number])}"
        assert copied == values(rows)[: len(copied)], f"partition {number}: the copies are not the messages"
    return sum(map(len, had.values()))
