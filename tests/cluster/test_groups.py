"""Groups of stock clients on three brokers, while members and coordinators are killed and hang (rule G2)."""

from __future__ import annotations

from collections.abc import Callable

from klog.protocol.apis import ApiKey
from tests.cluster.group_watch import group_of
from tests.cluster.load import load
from tests.cluster_fixture import RunningCluster

Record = Callable[[str, object], None]
PARTITIONS = 3


def coordinator(cluster: RunningCluster, group: str) -> int:
    """-1: nobody."""
    answer = cluster.ask(cluster.answering[0], ApiKey.FIND_COORDINATOR, 1, key=group, key_type=0)
    return int(answer.node_id)


def is_joining(cluster: RunningCluster, group: str, members: int) -> bool:
    """Whether the coordinator waits for members, or has as many already."""
    (described,) = cluster.ask(
        coordinator(cluster, group), ApiKey.DESCRIBE_GROUPS, 5, groups=[group], include_authorized_operations=False
    ).groups
    return str(described.group_state) != "Stable" or len(described.members) == members


def test_cooperative_members_keep_what_they_have_while_others_come_and_die(
    three: RunningCluster, topic: str, record_property: Record
) -> None:
    """The coordinator dies together with a member, in the middle of the rebalance that another member's coming is.

    That one that dies alone costs nobody a partition: `test_groups_fenced.py`.
    """
    three.create(topic, PARTITIONS)
    with (
        load(three.bootstrap, topic, PARTITIONS) as running,
        group_of(three, topic, PARTITIONS, strategy="cooperative-sticky") as group,
    ):
        first = group.member()
        group.wait_settled(first)
        second = group.member()
        # A generation before its share comes, the second owns nothing.
        group.wait_until(lambda: second.owned[1] and group.is_settled(first, second), "the second has its share")
        kept = first.owned[1]
        assert all(kept <= set(one["partitions"]) for one in first.said("owner") if one["partitions"])
        record_property("s_second_joins", round(second.said("owner")[-1]["at"] - second.said("subscribed")[0]["at"], 3))
        group.wait_for_commits()
        third = group.member()
        # By then it has the topic's metadata. librdkafka 2.16 waits minutes for them where the broker that it has asked
        # dies: the request ends with that broker's thread, and is not made again.
        group.wait_until(lambda: is_joining(three, group.name, members=3), "the third begins to join")
        victim = coordinator(three, group.name)
        three.kill(victim)
        second.kill()
        group.wait_settled(first, third)
        three.start(victim)
        group.wait_for_commits()
        running.stop()
        group.wait_until_read(running)
        group.judge(running)
