"""`klog lag` of many groups, and what Kafka's own command for it takes with as many."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path

from bench import group_lag
from bench.commands import COMMAND_TIMEOUT_S, CommandFailed
from bench.groups import topic_of
from bench.peers import KafkaZooKeeper
from bench.raw_member import MemberFailed, commit_to, connect_to_coordinator

COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def klog_lags(folder: Path, groups: int, partitions: int, rounds: int) -> list[float]:
    """Seconds of each round."""
    try:
        found = group_lag.measure(folder, groups, partitions, rounds)["seconds"]
    except SystemExit as error:
        raise CommandFailed(str(error)) from None
    assert isinstance(found, list)
    return found


def kafka_lags(system: KafkaZooKeeper, groups: int, partitions: int, rounds: int) -> list[float]:
    """The same of Kafka's command, over partitions that have no messages: it asks for as many offsets."""
    with topic_of(system.bootstrap, partitions) as topic:
        asyncio.run(_commit(system.bootstrap, topic, groups, partitions))
        command = system.tools.command(COMMAND, "--bootstrap-server", system.bootstrap, "--describe", "--all-groups")
        return [_timed(command, topic, groups * partitions) for _ in range(rounds)]


async def _commit(bootstrap: str, topic: str, groups: int, partitions: int) -> None:
    offsets = {(topic, partition): 0 for partition in range(partitions)}
    channel = await connect_to_coordinator(bootstrap, topic)
    try:
        for number in range(groups):
            if code := await commit_to(channel, f"{topic}-{number}", offsets):
                raise MemberFailed(f"a commit was answered with error {code}")
    finally:
        await channel.close()


def _timed(command: list[str], topic: str, rows: int) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
    seconds = time.perf_counter() - began
    found = sum(topic in line.split()[1:2] for line in done.stdout.splitlines())
    if done.returncode != 0 or found != rows:
        said = " / ".join(done.stderr.strip().splitlines()[-4:])
        raise CommandFailed(f"{COMMAND} exited with {done.returncode} after {found} of {rows} rows: {said}")
    return seconds
