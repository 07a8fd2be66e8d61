"""What a cluster is busy with while faults happen: replicas that move, brokers that are restarted in turn."""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time

from kazoo.exceptions import KazooException, NodeExistsError
from kazoo.handlers.threading import KazooTimeoutError

from tests.faults.cluster import POLL_S, FaultCluster

REASSIGN_PATH = "/admin/reassign_partitions"
FACTOR = 3
MOVE_S = 60.0
"""How long a reassignment may take once no fault is on."""
REST_S = 1.0


def reassign(
    cluster: FaultCluster, topic: str, stop: threading.Event, draw: random.Random, done: list[str], problems: list[str]
) -> None:
    """Moves every partition to brokers drawn anew, again and again, by 0.8's node; the last move is waited for.

    A partition that is to go to a broker that dies before the controller has looked is refused, and stays.
    """
    moves = refused = 0
    while not stop.is_set():
        partitions = _partitions(cluster, topic)
        if not partitions:
            time.sleep(POLL_S)
            continue
        alive = sorted(cluster.registered())
        if len(alive) < FACTOR:
            stop.wait(REST_S)
            continue
        wanted = {partition: draw.sample(alive, FACTOR) for partition in partitions}
        entries = [{"topic": topic, "partition": one, "replicas": brokers} for one, brokers in wanted.items()]
        try:
            cluster.zookeeper.create(REASSIGN_PATH, json.dumps({"version": 1, "partitions": entries}).encode())
        except (NodeExistsError, KazooException, KazooTimeoutError):
            stop.wait(REST_S)
            continue
        while not _is_settled(cluster, topic):
            if stop.wait(POLL_S):
                break
        moved = sum(cluster.replicas(topic, partition) == brokers for partition, brokers in wanted.items())
        moves, refused = moves + moved, refused + len(wanted) - moved
        stop.wait(REST_S)
    deadline = time.monotonic() + MOVE_S
    while not _is_settled(cluster, topic):
        if time.monotonic() > deadline:
            problems.append(f"a reassignment did not end in {MOVE_S:g} s: {cluster.topic_entry(topic)}")
            break
        time.sleep(POLL_S)
    done.append(f"{moves} partitions reassigned, {refused} refused or under way at the end")


def _partitions(cluster: FaultCluster, topic: str) -> list[int]:
    found = cluster.topic_entry(topic)
    return sorted(map(int, found["partitions"])) if found else []


def _is_settled(cluster: FaultCluster, topic: str) -> bool:
    """Nothing is asked for, and nothing is under way."""
    found = cluster.topic_entry(topic)
    if not found or any(found.get(key) for key in ("adding_replicas", "removing_replicas")):
        return False
    try:
        return cluster.zookeeper.exists_async(REASSIGN_PATH).get(timeout=2) is None
    except Exception:
        return False


def rolling(cluster: FaultCluster, topic: str, stop: threading.Event, done: list[str], problems: list[str]) -> None:
    """Stops and starts one broker after the other, each when all replicas are in sync again."""
    restarts = 0
    while not stop.is_set():
        for broker_id, node in cluster.nodes.items():
            while cluster.unhealed(topic, len(_partitions(cluster, topic))) and not stop.wait(POLL_S):
                pass
            if stop.is_set():
                break
            with node.lock:
                if not node.runs or node.is_paused:
                    continue
                try:
                    code = cluster.stop_broker(broker_id)
                except subprocess.TimeoutExpired:
                    problems.append(f"broker {broker_id} did not stop within 30 s of SIGTERM")
                    cluster.kill_broker(broker_id)
                    code = None
                if code not in (0, None):
                    problems.append(f"broker {broker_id} ended with {code} when told to stop")
                if not _started(cluster, broker_id, problems):
                    return
            restarts += 1
    done.append(f"{restarts} brokers restarted")


def _started(cluster: FaultCluster, broker_id: int, problems: list[str]) -> bool:
    """It runs again. One that starts while ZooKeeper is away says so and ends: whoever watches it starts it anew."""
    deadline = time.monotonic() + MOVE_S
    while True:
        try:
            cluster.start_broker(broker_id)
        except AssertionError as error:
            if time.monotonic() > deadline:
                problems.append(f"broker {broker_id} did not start again: {str(error)[-300:]}")
                return False
        else:
            return True
