"""Metadata names no leader that refuses connections: whoever asks waits a moment for the one that comes after it."""

from __future__ import annotations

import threading
import time
from typing import Any

from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.server.handlers.metadata import DOUBT_PATIENCE_S
from tests.cluster_fixture import RunningCluster

LEADER_NOT_AVAILABLE = 5


def metadata(topics: list[str] | None, version: int = 7) -> Any:
    asked = None if topics is None else [{"name": one} for one in topics]
    return codec.request(ApiKey.METADATA, version, topics=asked, allow_auto_topic_creation=False)


def leader_in(answer: Any, topic: str) -> tuple[int, int]:
    """Error and leader of its first partition."""
    one = next(one for one in answer.topics if one.name == topic).partitions[0]
    return int(one.error_code.value), int(one.leader_id)


def ids(three: RunningCluster) -> tuple[int, int, int]:
    """The controller, and the two others."""
    controller = three.controller()
    victim, witness = [one for one in (1, 2, 3) if one != controller]
    return controller, victim, witness


def test_while_nobody_elects(three: RunningCluster, topic: str) -> None:
    """The controller hangs, so that nothing happens until the test lets it: the dead leader is in nobody's answer."""
    controller, victim, witness = ids(three)
    three.create(topic, assignment=[[victim, witness, controller]])
    other = three.create(f"{topic}-other", assignment=[[witness, controller, victim]])
    three.wait_until(lambda: three.leader_of(topic) == victim and three.leader_of(other) == witness, "led as wanted")
    found: list[Any] = []
    with three.channel(witness) as channel, three.channel(witness) as beside:
        try:
            three.pause(controller)
            three.kill(victim)
            wanted = [topic, other]
            for names in (wanted, None):
                began_s = time.monotonic()
                answer = channel.request(metadata(names))
                assert time.monotonic() - began_s >= DOUBT_PATIENCE_S / 2  # it has waited for the outcome
                assert leader_in(answer, topic) == (LEADER_NOT_AVAILABLE, -1)
                assert leader_in(answer, other) == (0, witness)

            asking = threading.Thread(target=lambda: found.append(channel.request(metadata(wanted))))
            asking.start()
            # Others are served meanwhile, and who asks for what is not in doubt has it at once.
            assert leader_in(beside.request(metadata([other])), other) == (0, witness)
            asking.join()
            three.cont(controller)
            three.wait_until(
                lambda: leader_in(channel.request(metadata(wanted)), topic) in ((0, witness), (0, controller)),
                "another leader is named",
            )
        finally:
            three.cont(controller)
            three.heal()
    assert leader_in(found[0], topic) == (LEADER_NOT_AVAILABLE, -1)
