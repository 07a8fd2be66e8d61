"""Measures what the model of ZooKeeper takes for granted (`Measured`) on a real server and real connections.

Latencies are medians, what large requests add is from the fastest of them, and CPU times are those of the calling
process or thread, so that a busy machine adds little. The heap is what is left after a full collection.
"""

from __future__ import annotations

import asyncio
import statistics
import struct
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.simulation.costs import Measured
from klog.coordination import embedded, partition_states, paths
from klog.coordination.partition_states import PartitionState
from klog.coordination.zookeeper import Check, ZooKeeper
from klog.names import TopicPartition
from klog.net.channel import Channel
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.protocol.bounds import TRUSTED_ELEMENTS_MAX
from klog.server.image import ClusterImage, apply

WRITES = 200
UNDER_WAY = 2000
"""Writes that are sent without waiting, for the server's rate."""
STATES = 2000
NODES = 100_000
"""Partitions whose states are made for the bytes of a znode."""
PER_TOPIC = 1000
REQUESTS = 500


def measure(folder: Path) -> Measured:
    """Everything; takes about a minute. ``folder`` is for the server's data."""
    server = embedded.start(folder / "zookeeper", heap_bytes=1 << 30)
    try:
        server.await_serving()
        with ZooKeeper(server.address, 30_000) as zookeeper:
            zookeeper.start()
            found = _requests(zookeeper)
            empty_heap = _heap_bytes(server)
            nodes = _fill(zookeeper)
            full_heap = _heap_bytes(server)
        began_s = time.monotonic()
        server.stop()
        server = embedded.start(folder / "zookeeper")
        server.await_serving(120.0)
        started_s = time.monotonic() - began_s
        snapshot = max(one.stat().st_size for one in (folder / "zookeeper").rglob("snapshot.*"))
    finally:
        server.stop()
    return replace(
        found,
        node_heap_bytes=max(0.0, full_heap - empty_heap) / nodes,
        node_snapshot_bytes=snapshot / nodes,
        snapshot_node_s=started_s / nodes,
        channel_request_s=asyncio.run(_channel()),
        **_taking_in(),
        is_measured=True,
    )


def _requests(zookeeper: ZooKeeper) -> Measured:
    zookeeper.create("/fence", b"0")
    zookeeper.create("/one", b"0")
    data = b"x" * 150
    write_s, write_cpu_s = _took(lambda: zookeeper.set("/one", data), WRITES)
    read_s, read_cpu_s = _took(lambda: zookeeper.get("/one"), WRITES)

    def at_once(send: Callable[[], Any]) -> float:
        began_s = time.monotonic()
        for result in [send() for _ in range(UNDER_WAY)]:
            result.get(timeout=60)
        return (time.monotonic() - began_s) / UNDER_WAY

    client = zookeeper._client
    write_busy_s = min(at_once(lambda: client.set_async("/one", data)) for _ in range(3))
    read_busy_s = min(at_once(lambda: client.get_async("/one")) for _ in range(3))

    names = [TopicPartition("calibrated", number) for number in range(STATES)]
    states = {name: PartitionState(1, 0, (1, 2, 3), 1, incarnations=(1, 2, 3)) for name in names}
    zookeeper.ensure_path("/brokers/topics/calibrated")
    fence = [Check("/fence", 0)]
    known = partition_states.create_many(zookeeper, states, fence)

    def write() -> None:
        nonlocal known
        known = partition_states.write_many(zookeeper, known, fence)

    many_s, many_cpu_s = _took(write, 15, min)
    where = [paths.partition_state(*name) for name in names]
    nodes_s, nodes_cpu_s = _took(lambda: zookeeper.get_many(where), 15, min)
    # Client and server share this machine: what is the client's CPU time is not the server's.
    return Measured(
        write_s=write_s,
        write_busy_s=write_busy_s,
        multi_operation_s=max(0.0, many_s - write_s - many_cpu_s) / STATES,
        read_s=read_s,
        read_busy_s=read_busy_s,
        read_node_s=max(0.0, nodes_s - read_s - nodes_cpu_s) / STATES,
        client_request_s=(write_cpu_s + read_cpu_s) / 2,
        # Encoding the states is klog's own, which the simulation runs: about as long as it takes here.
        client_operation_s=max(0.0, many_cpu_s - _encoding_s(states)) / STATES,
        client_node_s=nodes_cpu_s / STATES,
    )


def _encoding_s(states: dict[TopicPartition, PartitionState]) -> float:
    began_s = time.thread_time()
    for one in states.values():
        partition_states._encode(one)
    return time.thread_time() - began_s


def _took(
    act: Callable[[], object], times: int, of: Callable[[list[float]], float] = statistics.median
) -> tuple[float, float]:
    """Seconds and CPU seconds of this process, of one call: the median, or the least."""
    took: list[float] = []
    cpu: list[float] = []
    for _ in range(times):
        cpu_s, began_s = time.process_time(), time.monotonic()
        act()
        took.append(time.monotonic() - began_s)
        cpu.append(time.process_time() - cpu_s)
    return of(took), of(cpu)


def _fill(zookeeper: ZooKeeper) -> int:
    """Make states of partitions; how many znodes that were, with their folders."""
    for topic in range(NODES // PER_TOPIC):
        zookeeper.ensure_path(f"/brokers/topics/t{topic}")
        states = {
            TopicPartition(f"t{topic}", number): PartitionState(1, 0, (1, 2, 3), 1, incarnations=(1001, 1002, 1003))
            for number in range(PER_TOPIC)
        }
        partition_states.create_many(zookeeper, states, [Check("/fence", 0)])
    return 2 * NODES


def _heap_bytes(server: embedded.ZooKeeperServer) -> float:
    """What the server's objects take, after a full collection."""
    text = subprocess.run(
        ["jcmd", str(server.identity.pid), "GC.class_histogram"], capture_output=True, text=True, check=True
    ).stdout
    total = next(line for line in reversed(text.splitlines()) if line.startswith("Total"))
    return float(total.split()[2])


async def _channel() -> float:
    """A real connection to a thread that answers each request: the CPU time of this one."""
    loop = asyncio.new_event_loop()
    port: list[int] = []
    is_open, ending = threading.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                writer.write(struct.pack(">i", 8) + frame[4:8] + b"\0\0\0\0")
        except asyncio.IncompleteReadError:
            writer.close()

    async def serve() -> None:
        serving = await asyncio.start_server(answer, "127.0.0.1", 0)
        port.append(serving.sockets[0].getsockname()[1])
        is_open.set()
        await ending.wait()
        serving.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    is_open.wait()
    reader, writer = await asyncio.open_connection("127.0.0.1", port[0])
    channel = Channel(reader, writer, address="", client_id="calibration", timeout_s=30.0, trace=None)
    request = codec.request(ApiKey.DESCRIBE_REPLICAS, 0, controller_epoch=1, incarnation=1)
    coding_s = time.thread_time()
    for _ in range(REQUESTS):
        codec.encode_request(request, 1, "calibration")
    coding_s = time.thread_time() - coding_s
    began_s = time.thread_time()
    for _ in range(REQUESTS):
        await channel.request(codec.request(ApiKey.UPDATE_METADATA, 0, **_update(0, 0)))
    took_s = time.thread_time() - began_s
    await channel.close()
    loop.call_soon_threadsafe(ending.set)
    thread.join()
    loop.close()
    return max(0.0, took_s - coding_s) / REQUESTS


def _update(brokers: int, partitions: int) -> dict[str, Any]:
    listed = [
        {
            "broker_id": one,
            "host": f"host-{one}",
            "port": 9092,
            "rack": None,
            "incarnation": one,
            "inter_host": f"host-{one}",
            "inter_port": 9092,
        }
        for one in range(brokers)
    ]
    of_topic = [
        {
            "partition_index": number,
            "leader": 1,
            "leader_epoch": 1,
            "isr": (1, 2, 3),
            "replicas": (1, 2, 3),
            "offline": (),
            "adding": (),
            "removing": (),
            "throttle": 0,
        }
        for number in range(partitions)
    ]
    topic = {"name": "t", "topic_id": uuid.uuid4(), "is_deleted": False, "settings": [], "partitions": of_topic}
    head = {"controller_id": 1, "controller_epoch": 1, "incarnation": 1, "is_full": True}
    return {**head, "brokers": listed, "topics": [topic] if partitions else [], "slots": []}


def _taking_in() -> dict[str, float]:
    """What a broker's loop does with the controller's requests: decode, and take in."""

    def update_s(brokers: int, partitions: int) -> float:
        frame = memoryview(codec.encode_request(codec.request(10012, 0, **_update(brokers, partitions)), 1, "c")[4:])
        began_s = time.thread_time()
        apply(ClusterImage(), codec.decode_body(frame, codec.read_head(frame), TRUSTED_ELEMENTS_MAX))
        return time.thread_time() - began_s

    def lead_s(partitions: int) -> float:
        listed = [
            {
                "partition_index": number,
                "controller_epoch": 1,
                "leader": 1,
                "leader_epoch": 1,
                "isr": (1, 2, 3),
                "incarnations": (1, 2, 3),
                "state_version": 1,
                "replicas": (1, 2, 3),
                "is_new": False,
                "unclean_epoch": -1,
            }
            for number in range(partitions)
        ]
        topic = {"name": "t", "topic_id": uuid.uuid4(), "fence_version": 0, "partitions": listed}
        head = {"controller_id": 1, "controller_epoch": 1, "incarnation": 1, "is_full": True}
        entity = codec.request(ApiKey.LEADER_AND_ISR, 0, **head, topics=[topic])
        frame = memoryview(codec.encode_request(entity, 1, "c")[4:])
        began_s = time.thread_time()
        codec.decode_body(frame, codec.read_head(frame), TRUSTED_ELEMENTS_MAX)
        return time.thread_time() - began_s

    none_s = min(update_s(0, 0) for _ in range(5))
    return {
        "apply_partition_s": (min(update_s(0, 20_000) for _ in range(5)) - none_s) / 20_000,
        "apply_broker_s": (min(update_s(1000, 0) for _ in range(5)) - none_s) / 1000,
        "lead_partition_s": min(lead_s(10_000) for _ in range(5)) / 10_000,
    }
