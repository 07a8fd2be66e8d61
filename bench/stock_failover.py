"""What stock clients with their default settings wait for when brokers are killed with -9: klog's clusters alone.

Each kill meets all clients at once, each on a topic of its own, or with a group of its own. The figure is the longest
time from the kill on that any partition of a client was without a success, until every one has one again. A topic has a
partition led by each broker, so that clients are connected to all of them, as they mostly are; Java's tool chooses
partitions itself, so it gets one, led by the broker that is killed where that is a leader. A leader of many partitions
leads those of a topic beside them, to which nothing is written.

All clients log at their debug level, into memory. Of a wait beyond the bar the client's own log goes into the results,
shortened, and whole into the folder of Kafka's jars, with what the brokers have logged meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka.admin import NewTopic

from bench import client_log
from bench.bars import KLOG_3, LEADER_OF_MANY, STOCK_COMMITTERS, STOCK_KILLS, STOCK_PRODUCERS, STOCK_WORST_S, stock
from bench.children import Child, wait_until
from bench.cluster_systems import BROKERS, KlogCluster
from bench.cluster_topics import admin_of, await_in_sync, bootstrap_of, controller_of
from bench.maven import PeerMissing, cache_folder, java_tools
from bench.raw_member import coordinator_of
from bench.run import say
from bench.run_record import RunRecord

EVEN_S = 1.5
"""Before a kill, and after everybody has had a success again."""
TOPIC_TIMEOUT_S = 60.0
HEAL_S = 60.0
SUCCESSES = 20
"""Of each client before the kill, and after it."""
BEFORE_S, AFTER_S = 0.1, 0.3
"""What is shown of a log before the kill, and after the wait."""


def measure(record: RunRecord, folder: Path, kills: int, partitions: int) -> None:
    """Each kind of kill, so often, in turns. ``partitions``: of a topic; the leader that is killed leads them all."""
    producers, committers = list(STOCK_PRODUCERS), list(STOCK_COMMITTERS)
    try:
        java_tools("kafka-3.9")
    except PeerMissing as error:
        producers.remove("java")
        committers.remove("java-commits")
        record.notes.append(f"stock clients: Java's is left out: {error}")
    system = KlogCluster(folder / "stock")
    try:
        system.start()
        record.versions.setdefault(system.name, system.version)
        record.options.setdefault(system.name, system.options)
        for number in range(kills):
            for what in STOCK_KILLS:
                clients = committers if what == "coordinator" else producers
                found = _killed(record, system, folder, what, clients, partitions)
                for client, seconds in found.items():
                    record.add(stock(what, client), KLOG_3, {"seconds": seconds})
                waits = ", ".join(f"{client} {seconds:.2f} s" for client, seconds in found.items())
                say(f"stock clients, {what} killed, {number + 1} of {kills}: {waits}")
    finally:
        system.stop()


def _killed(
    record: RunRecord, system: KlogCluster, folder: Path, what: str, clients: Sequence[str], partitions: int
) -> dict[str, float]:
    """Client -> seconds."""
    bootstrap = bootstrap_of(system)
    victim = _victim(system, what)
    topics = {client: f"stock-{secrets.token_hex(4)}-{client}" for client in clients}
    if what == "coordinator":  # the group has its topic's name, and is coordinated by whoever has its slot
        for client in clients:
            while asyncio.run(coordinator_of(bootstrap, topics[client]))[1] != system.ports[victim - 1]:
                topics[client] = f"stock-{secrets.token_hex(4)}-{client}"
    replicas = [victim, *(one for one in range(1, BROKERS + 1) if one != victim)]
    turned = [[*replicas[at:], *replicas[:at]] for at in range(BROKERS)]
    if what in ("coordinator", "controller"):  # which lead nothing here
        turned = [[*replicas[1:], victim], [*replicas[:0:-1], victim]]
    placed = {client: turned[:1] if client == "java" else turned for client in clients}
    assignments = {topic: placed[client] for client, topic in topics.items()}
    if what == LEADER_OF_MANY:
        assignments[f"stock-{secrets.token_hex(4)}-others"] = [replicas] * partitions
    admin = admin_of(system)
    made = admin.create_topics(
        [NewTopic(topic, len(assigned), replica_assignment=assigned) for topic, assigned in assignments.items()]
    )
    for one in made.values():
        one.result(TOPIC_TIMEOUT_S)
    for topic in assignments:
        await_in_sync(system, topic)
    with contextlib.ExitStack() as running:
        children = {
            client: running.enter_context(
                Child(
                    "bench.stock_client",
                    *(client, bootstrap, topic, len(placed[client])),
                    log=folder / "stock-clients.log",
                )
            )
            for client, topic in topics.items()
        }
        everybody = list(children.values())

        def await_successes(since_s: float) -> None:
            wait_until(
                lambda: all(_is_served(children[one], _served(one, placed[one]), since_s) for one in clients),
                "successes of all",
                everybody,
                HEAL_S,
            )

        await_successes(0.0)
        time.sleep(EVEN_S)
        broker_logs = {path: path.stat().st_size for path in sorted(system.folder.glob("broker-*.log"))}
        killed_s = time.monotonic()
        system.broker(victim - 1).kill()
        await_successes(killed_s)
        time.sleep(EVEN_S)
        waits = {client: _longest(one, _served(client, placed[client]), killed_s) for client, one in children.items()}
        found = {client: ended_s - began_s for client, (began_s, ended_s) in waits.items()}
        for client, one in children.items():
            given_up = [event for event in one.events if event.words[0] == "failed" and event.at > killed_s]
            if given_up:
                say(f"{client}: {len(given_up)} failed, such as {given_up[0].words[1:]}")
            if found[client] > STOCK_WORST_S:
                path = _log_path(what, client)
                one.say(f"log {min(killed_s, waits[client][0]) - BEFORE_S} {waits[client][1] + AFTER_S} {path}")
                one.wait_for("logged")
                title = f"{what} killed with -9: {client} waited {found[client]:.2f} s; its log, from the kill on"
                record.remarks.append([title, *client_log.shortened(client_log.read(path), killed_s)])
                with path.open("a") as file:
                    for broker_log, size in broker_logs.items():
                        file.write(f"\n{broker_log.name}:\n{broker_log.read_text(errors='replace')[size:]}")
                began_s, ended_s = (at - killed_s for at in waits[client])
                say(f"{client} waited from {began_s:.2f} to {ended_s:.2f} s after {killed_s:.6f}: {path}")
    system.start_broker(victim - 1)
    for topic in assignments:
        await_in_sync(system, topic)
    admin = admin_of(system)
    for one in admin.delete_topics(list(assignments)).values():
        one.result(TOPIC_TIMEOUT_S)
    return found


def _log_path(what: str, client: str) -> Path:
    """Of a file that there is not."""
    folder = cache_folder() / "stock-logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{what.replace(' ', '-')}-{client}.log"


def _victim(system: KlogCluster, what: str) -> int:
    controller = controller_of(system)
    if what in ("controller", "leader and controller"):
        return controller
    return next(one for one in range(1, BROKERS + 1) if one != controller)


def _served(client: str, placed: Sequence[object]) -> int:
    """How many partitions tell of successes: commits have one."""
    return 1 if client in STOCK_COMMITTERS else len(placed)


def _successes(child: Child, partition: int) -> list[float]:
    return [event.at for event in list(child.events) if event.words == ("acked", str(partition))]


def _is_served(child: Child, partitions: int, since_s: float) -> bool:
    """Whether every partition has had some successes since then."""
    return all(sum(at > since_s for at in _successes(child, partition)) >= SUCCESSES for partition in range(partitions))


def _longest(child: Child, partitions: int, killed_s: float) -> tuple[float, float]:
    """When the longest pause of any partition began and ended, of those that ended after the kill."""
    times = [_successes(child, partition) for partition in range(partitions)]
    pauses = [pause for one in times for pause in itertools.pairwise(one) if pause[1] > killed_s]
    return max(pauses, key=lambda pause: pause[1] - pause[0])
