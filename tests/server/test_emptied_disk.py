"""A broker that is back with an empty disk, while the ISR still counts the one it was before (rule R1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from klog.coordination.zookeeper import ZooKeeper
from tests.server.replica_owner import owning


async def test_r1_no_empty_log_is_made_while_the_isr_counts_an_earlier_incarnation(
    connect: Callable[..., ZooKeeper], tmp_path: Path
) -> None:
    """Made, it would be there, whole and flushed: what may lead when all others are gone."""
    async with owning(connect(), tmp_path) as owner:
        topic = await owner.make_topic("t", new=False)
        earlier = owner.incarnations((1, 2, 3))
        await owner.register()
        topic.change(leader=2, leader_epoch=1, incarnations=earlier)
        answer = await owner.say(topic, is_full=True)
        assert (answer["error_code"], answer["failed"]) == (0, [])
        assert owner.log_dirs.logs() == [] and not owner.replicas.followed
        assert owner.replicas.describe() == []
        topic.change(isr=(2, 3), incarnations=owner.incarnations((2, 3)), version=1)
        await owner.say(topic)
        assert set(owner.replicas.followed) == {topic.first}
        assert owner.log(topic).end.address == 0
