"""Elections that no death causes: of preferred leaders, unclean ones, of a successor of a leader that gives up.

Preferred leaders, which placement spreads evenly, are elected on request, and where ``auto.leader.rebalance.enable`` is
set: every ``leader.imbalance.check.interval.seconds``, for each broker that does not lead more than
``leader.imbalance.per.broker.percentage`` of the partitions it is the preferred leader of.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from klog.coordination.acts import ELECTION_ACT, UNCLEAN_ACT, Act, Actor, new_act
from klog.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    KlogError,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from klog.names import TopicPartition, counted
from klog.replication import leader_election
from klog.replication.leader_election import Decision, NoLeader
from klog.server.controller.controller_part import ControllerPart

log = logging.getLogger(__name__)

_Find = Callable[[TopicPartition], Decision | KlogError]
_Outcome = dict[TopicPartition, KlogError | None]


class Elections(ControllerPart):
    # --- on request ---------------------------------------------------------------------------------------------------

    async def elect(self, names: Iterable[TopicPartition] | None, *, unclean: bool, actor: Actor) -> _Outcome:
        """Elect the preferred leader of each, or with `unclean` any live replica of those without a leader.

        `names` None: all partitions; the result omits those that need no election. Partition -> error:
        ElectionNotNeeded, PreferredLeaderNotAvailable, EligibleLeadersNotAvailable, UnknownTopicOrPartition. Raises
        NotController.
        """
        find, kind = (self._unclean, UNCLEAN_ACT) if unclean else (self._in_sync, ELECTION_ACT)
        outcome = await self._elect(names, find, actor, kind)
        if names is None:
            outcome = {name: error for name, error in outcome.items() if not isinstance(error, ElectionNotNeeded)}
        return outcome

    async def elect_chosen(self, wanted: Mapping[TopicPartition, int], actor: Actor) -> _Outcome:
        """Elect the replica on this broker in each partition. Partition -> error, as `elect`; raises NotController."""
        return await self._elect(wanted, lambda name: self._in_sync(name, wanted[name]), actor, ELECTION_ACT)

    async def elect_preferred_locked(self, names: Iterable[TopicPartition] | None, actor: Actor) -> _Outcome:
        """As `elect`, under the controller's lock."""
        return await self._elect_locked(names, self._in_sync, actor, ELECTION_ACT)

    async def _elect(self, names: Iterable[TopicPartition] | None, find: _Find, actor: Actor, kind: str) -> _Outcome:
        async with self._state.lock:
            self._state.require()
            outcome = await self._elect_locked(names, find, actor, kind)
        await self._channels.acknowledged(self._state.context.live)
        return outcome

    async def _elect_locked(
        self, names: Iterable[TopicPartition] | None, find: _Find, actor: Actor, kind: str
    ) -> _Outcome:
        """The acts are written after the elections, and before any client gets an answer."""
        context = self._state.context
        outcome: _Outcome = {}
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

        asked = list(dict.fromkeys(context.partitions() if names is None else names))
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

    # --- for balance --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """The term has begun."""
        if self._state.context.config.flag("auto.leader.rebalance.enable"):
            self._state.spawn(self._keep_balance())

    async def _keep_balance(self) -> None:
        while True:
            await asyncio.sleep(self._state.context.config.integer("leader.imbalance.check.interval.seconds"))
            names = self._imbalanced()
            if names:
                log.info("electing the preferred leaders of %s", counted(len(names), "partition"))
                try:
                    async with self._state.lock:
                        self._state.require()
                        await self._partitions.change(names, self._preferred)
                except KlogError as error:
                    log.warning("preferred leaders were not elected: %s", error.message)

    def _imbalanced(self) -> list[TopicPartition]:
        """The partitions led by others whose preferred leader leads too few of its own."""
        context = self._state.context
        limit = context.config.integer("leader.imbalance.per.broker.percentage")
        preferred: dict[int, list[TopicPartition]] = defaultdict(list)
        for name in context.partitions():
            if name in context.states and name.topic not in context.deleting:
                preferred[context.replicas(name)[0]].append(name)
        found = []
        for broker_id, names in preferred.items():
            led_by_others = [name for name in names if context.states[name].leader != broker_id]
            if context.is_live(broker_id) and len(led_by_others) * 100 > limit * len(names):
                found += led_by_others
        return found

    def _preferred(self, name: TopicPartition) -> Decision | None:
        found = self._in_sync(name)
        return found if isinstance(found, Decision) else None


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
