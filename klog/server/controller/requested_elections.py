"""Elections on request: of preferred leaders, unclean ones, and of another leader in place of one that gives up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from klog.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    KlogError,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from klog.names import TopicPartition
from klog.replication import election
from klog.replication.election import Decision, NoLeader
from klog.server.controller.broker_channels import BrokerChannels
from klog.server.controller.controller_state import ControllerState
from klog.server.controller.partition_writer import PartitionWriter


class RequestedElections:
    """Event loop only."""

    def __init__(self, state: ControllerState, channels: BrokerChannels, partitions: PartitionWriter) -> None:
        self._state = state
        self._channels = channels
        self._partitions = partitions

    async def elect(
        self, names: Iterable[TopicPartition] | None, *, unclean: bool
    ) -> dict[TopicPartition, KlogError | None]:
        """Elect the preferred leader of each, or with `unclean` any live replica of those without a leader.

        `names` None: all partitions; the result leaves out those that need no election. Partition -> error:
        ElectionNotNeeded, PreferredLeaderNotAvailable, EligibleLeadersNotAvailable, UnknownTopicOrPartition.
        NotController is raised.
        """
        state = self._state
        async with state.lock:
            state.require()
            asked = list(state.context.partitions()) if names is None else list(names)
            outcome = await self.elect_locked(asked, unclean=unclean)
        await self._channels.acknowledged(state.context.live)
        if names is None:
            outcome = {name: error for name, error in outcome.items() if not isinstance(error, ElectionNotNeeded)}
        return outcome

    async def elect_locked(
        self, names: Iterable[TopicPartition], *, unclean: bool
    ) -> dict[TopicPartition, KlogError | None]:
        """As `elect`, under the controller's lock."""
        context = self._state.context
        outcome: dict[TopicPartition, KlogError | None] = {}
        elected: set[TopicPartition] = set()

        def decide(name: TopicPartition) -> Decision | None:
            found = self._unclean(name) if unclean else self._preferred(name)
            if isinstance(found, Decision):
                outcome[name] = None
                elected.add(name)
                return found
            if name not in elected:
                outcome[name] = found
            return None

        asked = list(dict.fromkeys(names))
        for name in asked:
            if not context.knows(name) or name.topic in context.deleting:
                outcome[name] = UnknownTopicOrPartition(f"partition {name} does not exist")
        await self._partitions.change(asked, decide)
        return {name: outcome[name] for name in asked}

    def _preferred(self, name: TopicPartition) -> Decision | KlogError:
        context = self._state.context
        state, replicas = context.states.get(name), context.replicas(name)
        if state is None:
            return PreferredLeaderNotAvailable(f"{name} has never had a leader")
        found = election.preferred(state, replicas, context.election_input(name))
        if found is None:
            return ElectionNotNeeded(f"{name} is led by its preferred replica {replicas[0]}")
        if isinstance(found, NoLeader):
            return PreferredLeaderNotAvailable(f"{name}: {found.reason}")
        return found

    def _unclean(self, name: TopicPartition) -> Decision | KlogError:
        context = self._state.context
        state, known = context.states.get(name), context.election_input(name)
        if state is None:
            return EligibleLeadersNotAvailable(f"{name} has never had a leader, and none of its replicas is alive")
        if state.leader in election.uninterrupted(state, known):
            return ElectionNotNeeded(f"{name} is led by broker {state.leader}")
        found = election.offline(
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
        """Elect another in-sync replica of those of these partitions that the broker leads, where there is one.

        ``reason`` follows "broker N" in the events. Raises NotController, StaleBrokerEpoch.
        """
        state = self._state
        state.check_incarnation(broker_id, incarnation)

        def decide(name: TopicPartition) -> Decision | None:
            context = state.context
            known = context.states.get(name)
            if known is None or known.leader != broker_id:
                return None
            found = election.leaving(known, context.replicas(name), broker_id, context.election_input(name))
            return replace(found, reason=f"broker {broker_id} {reason}") if isinstance(found, Decision) else None

        async with state.lock:
            state.require()
            await self._partitions.change(names, decide)
