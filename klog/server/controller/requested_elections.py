"""Elections on request: of preferred leaders, unclean ones, and of a successor of a leader that gives up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from klog.coordination.acts import ELECTION_ACT, UNCLEAN_ACT, Act, Actor, new_act
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    KlogError,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from klog.names import TopicPartition
from klog.replication import leader_election
from klog.replication.leader_election import Decision, NoLeader
from klog.server.controller.broker_channels import BrokerChannels
from klog.server.controller.controller_state import ControllerState
from klog.server.controller.partition_writer import PartitionWriter


class RequestedElections:
    """Event loop only."""

    def __init__(
        self, zookeeper: ZooKeeper, state: ControllerState, channels: BrokerChannels, partitions: PartitionWriter
    ) -> None:
        self._zookeeper = zookeeper
        self._state = state
        self._channels = channels
        self._partitions = partitions

    async def elect(
        self, names: Iterable[TopicPartition] | None, *, unclean: bool, actor: Actor
    ) -> dict[TopicPartition, KlogError | None]:
        """Elect the preferred leader of each, or with `unclean` any live replica of those without a leader.

        `names` None: all partitions; the result omits those that need no election. Partition -> error:
        ElectionNotNeeded, PreferredLeaderNotAvailable, EligibleLeadersNotAvailable, UnknownTopicOrPartition. Raises
        NotController.
        """
        state = self._state
        async with state.lock:
            state.require()
            asked = list(state.context.partitions()) if names is None else list(names)
            outcome = await self._elect(
                asked, self._unclean if unclean else self._in_sync, actor, UNCLEAN_ACT if unclean else ELECTION_ACT
            )
        await self._channels.acknowledged(state.context.live)
        if names is None:
            outcome = {name: error for name, error in outcome.items() if not isinstance(error, ElectionNotNeeded)}
        return outcome

    async def elect_chosen(
        self, wanted: Mapping[TopicPartition, int], actor: Actor
    ) -> dict[TopicPartition, KlogError | None]:
        """Elect the replica on this broker in each partition. Partition -> error, as `elect`; raises NotController."""
        state = self._state
        async with state.lock:
            state.require()
            outcome = await self._elect(wanted, lambda name: self._in_sync(name, wanted[name]), actor, ELECTION_ACT)
        await self._channels.acknowledged(state.context.live)
        return outcome

    async def elect_preferred_locked(
        self, names: Iterable[TopicPartition], actor: Actor
    ) -> dict[TopicPartition, KlogError | None]:
        """As `elect`, under the controller's lock."""
        return await self._elect(names, self._in_sync, actor, ELECTION_ACT)

    async def _elect(
        self,
        names: Iterable[TopicPartition],
        find: Callable[[TopicPartition], Decision | KlogError],
        actor: Actor,
        kind: str,
    ) -> dict[TopicPartition, KlogError | None]:
        """Under the lock. The acts are written after the elections, and before any client gets an answer."""
        context = self._state.context
        outcome: dict[TopicPartition, KlogError | None] = {}
        before: dict[TopicPartition, int] = {}

        def decide(name: TopicPartition) -> Decision | None:
            found = find(name)
            if isinstance(found, Decision):
                outcome[name] = None
                before.setdefault(name, context.states[name].leader)
                return found
            if name not in before:
                outcome[name] = found
            return None

        asked = list(dict.fromkeys(names))
        for name in asked:
            if not context.knows(name) or name.topic in context.deleting:
                outcome[name] = UnknownTopicOrPartition(f"partition {name} does not exist")
        await self._partitions.change(asked, decide)
        acts = _acts(kind, actor, before, {name: context.states[name].leader for name in before})
        if acts:
            writes = [[act.write] for act in acts]
            await self._state.write(self._zookeeper.commit_each, writes, self._state.fence)
        return {name: outcome[name] for name in asked}

    def _in_sync(self, name: TopicPartition, wanted: int | None = None) -> Decision | KlogError:
        """The replica on the broker ``wanted``; None: the preferred one."""
        context = self._state.context
        state, replicas = context.states.get(name), context.replicas(name)
        if state is None:
            return PreferredLeaderNotAvailable(f"{name} has never had a leader")
        known = context.election_input(name)
        if wanted is None:
            found = leader_election.preferred(state, replicas, known)
        else:
            found = leader_election.chosen(state, wanted, known)
        if found is None:
            leader = f"its preferred replica {replicas[0]}" if wanted is None else f"broker {wanted}"
            return ElectionNotNeeded(f"{name} is led by {leader}")
        if isinstance(found, NoLeader):
            return PreferredLeaderNotAvailable(f"{name}: {found.reason}")
        return found

    def _unclean(self, name: TopicPartition) -> Decision | KlogError:
        context = self._state.context
        state, known = context.states.get(name), context.election_input(name)
        if state is None:
            return EligibleLeadersNotAvailable(f"{name} has never had a leader, and none of its replicas is alive")
        if state.leader in leader_election.uninterrupted(state, known):
            return ElectionNotNeeded(f"{name} is led by broker {state.leader}")
        found = leader_election.offline(
            state,
            context.replicas(name),
            known,
            unclean_allowed=True,
            first_epoch=context.first_epochs.get(name.topic, 0),
        )
        return EligibleLeadersNotAvailable(f"{name}: {found.reason}") if isinstance(found, NoLeader) else found

    async def replace_leader(
        self, broker_id: int, incarnation: int, names: Iterable[TopicPartition], reason: str
    ) -> None:
        """Elect another in-sync replica for those of these partitions that the broker leads, if there is one.

        ``reason`` follows "broker N" in the events. Raises NotController, StaleBrokerEpoch.
        """
        state = self._state
        state.check_incarnation(broker_id, incarnation)

        def decide(name: TopicPartition) -> Decision | None:
            context = state.context
            known = context.states.get(name)
            if known is None or known.leader != broker_id:
                return None
            found = leader_election.leaving(known, context.replicas(name), broker_id, context.election_input(name))
            return replace(found, reason=f"broker {broker_id} {reason}") if isinstance(found, Decision) else None

        async with state.lock:
            state.require()
            await self._partitions.change(names, decide)


def _acts(
    kind: str, actor: Actor, before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int]
) -> list[Act]:
    """One act per topic; the states map partitions to leaders."""
    topics: dict[str, list[int]] = defaultdict(list)
    for name in before:
        topics[name.topic].append(name.partition)
    return [
        new_act(
            kind,
            actor,
            topic=topic,
            before={str(number): before[TopicPartition(topic, number)] for number in numbers},
            after={str(number): after[TopicPartition(topic, number)] for number in numbers},
        )
        for topic, numbers in topics.items()
    ]
