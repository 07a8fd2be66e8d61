"""Elections that somebody asks for: of preferred leaders, and unclean ones where nobody else may lead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from klog.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    KlogError,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from klog.names import TopicPartition
from klog.replication import election
from klog.replication.election import Decision, Nobody

if TYPE_CHECKING:
    from klog.server.controller.controller import Controller


class Elections:
    """Event loop only."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def elect(
        self, names: Iterable[TopicPartition] | None, *, unclean: bool
    ) -> dict[TopicPartition, KlogError | None]:
        """Elect the preferred leader of each, or with `unclean` any replica alive where there is no leader.

        `names` None: all partitions, of which those that need none are left out. Partition -> why not:
        ElectionNotNeeded, PreferredLeaderNotAvailable, EligibleLeadersNotAvailable, UnknownTopicOrPartition.
        NotController is raised.
        """
        controller = self._controller
        async with controller.acting:
            controller.require()
            asked = list(controller.context.partitions()) if names is None else list(names)
            outcome = await self.elect_locked(asked, unclean=unclean)
        await controller.told()
        if names is None:
            outcome = {name: error for name, error in outcome.items() if not isinstance(error, ElectionNotNeeded)}
        return outcome

    async def elect_locked(
        self, names: Iterable[TopicPartition], *, unclean: bool
    ) -> dict[TopicPartition, KlogError | None]:
        """As `elect`, under the controller's lock."""
        context = self._controller.context
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
                outcome[name] = UnknownTopicOrPartition(f"there is no partition {name}")
        await self._controller.change(asked, decide)
        return {name: outcome[name] for name in asked}

    def _preferred(self, name: TopicPartition) -> Decision | KlogError:
        context = self._controller.context
        state, replicas = context.states.get(name), context.replicas(name)
        if state is None:
            return PreferredLeaderNotAvailable(f"{name} has never had a leader")
        found = election.preferred(state, replicas, context.situation(name))
        if found is None:
            return ElectionNotNeeded(f"{name} is led by its preferred replica {replicas[0]}")
        if isinstance(found, Nobody):
            return PreferredLeaderNotAvailable(f"{name}: {found.reason}")
        return found

    def _unclean(self, name: TopicPartition) -> Decision | KlogError:
        context = self._controller.context
        state, situation = context.states.get(name), context.situation(name)
        if state is None:
            return EligibleLeadersNotAvailable(f"{name} has never had a leader, and no replica is alive")
        if state.leader in election.uninterrupted(state, situation):
            return ElectionNotNeeded(f"{name} is led by broker {state.leader}")
        found = election.offline(
            state,
            context.replicas(name),
            situation,
            unclean_allowed=True,
            first_epoch=context.first_epochs.get(name.topic, 0),
        )
        return EligibleLeadersNotAvailable(f"{name}: {found.reason}") if isinstance(found, Nobody) else found
