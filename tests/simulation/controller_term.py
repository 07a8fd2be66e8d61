"""The controller: what it knows, what it decides by the real `klog.replication.leader_election`, and whom it tells."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from klog.coordination.partition_states import PartitionState
from klog.replication import leader_election
from klog.replication.leader_election import Decision, ElectionInput, NoLeader, Waiting
from tests.simulation.network import ENDED, REFUSED
from tests.simulation.registry import ANY, LOST, OK, Check, Node, Put
from tests.simulation.replica import REPLICAS, Facts
from tests.simulation.states import STATE, data_of, state_of

if TYPE_CHECKING:
    from tests.simulation.broker import BrokerProcess

PATIENCE_S = 0.6
"""Before an unanswered question is asked again."""
AGAIN_S = 0.1
BALANCE_SHARE = 0.05
"""Of all ticks: the preferred leader is given its place back, if it may have it."""


class Term:
    """One term."""

    def __init__(self, process: BrokerProcess, epoch: int, fence: Check) -> None:
        self.process = process
        self.world = process.world
        self.cluster = process.host.cluster
        self.epoch = epoch
        self.fence = fence
        self.registered: dict[int, int] = {}
        self.refused: dict[int, int] = {}
        self.trusted: set[int] = set()
        self.facts: dict[int, Facts | None] = {}
        self.lost: set[int] = set()
        self.heard: set[int] = set()
        """Who has answered since the last change in who lives."""
        self.leaving: dict[int, int] = {}
        """Broker id -> the incarnation that shuts down."""
        self._changed_s = 0.0
        self.state: PartitionState | None = None
        self.is_writing = False
        self._is_settling = False
        self._is_unsettled = False
        self._knows_registry = False
        self._told: dict[int, Any] = {}
        self._asked_s: dict[tuple[int, str], float] = {}
        self._is_balancing = False
        self._waits_since_s: float | None = None
        self.world.say("broker %d is controller, epoch %d", process.host.broker_id, epoch)
        self.doubt()

    @property
    def is_over(self) -> bool:
        return self.process.term is not self

    @property
    def alive(self) -> dict[int, int]:
        return {one: inc for one, inc in self.registered.items() if self.refused.get(one) != inc}

    # --- Settling -----------------------------------------------------------------------------------------------------

    def doubt(self) -> None:
        """Read the registry and the state again, then reconcile."""
        if self.is_over and self._knows_registry:
            return
        if self._is_settling:
            self._is_unsettled = True
            return
        self._is_settling = True
        self.process.session.read(["/ids/*", STATE, self.fence.path], self._read)

    def _read(self, outcome: str, nodes: dict[str, Node | None]) -> None:
        if self.is_over:
            return
        if outcome == LOST:
            self._is_settling = False
            self.process.after(AGAIN_S, self.doubt)
            return
        epoch = nodes.pop(self.fence.path)
        if epoch is None or epoch.version != self.fence.version:
            self._end()
            return
        state = state_of(nodes.pop(STATE))
        if state is not None and (self.state is None or state.version > self.state.version):
            self.state = state
        now = {int(path.rpartition("/")[2]): node.created for path, node in nodes.items() if node is not None}
        for one in [one for one, inc in self.registered.items() if now.get(one) != inc]:
            self.refused.pop(one, None)
            self.facts.pop(one, None)
            self.leaving.pop(one, None)
            self._told.pop(one, None)
            self.lost.discard(one)
        if now != self.registered:
            self._hear_again()
        self.registered = dict(sorted(now.items()))
        self._knows_registry = True
        self._reconcile()

    def _hear_again(self) -> None:
        """Who lives has changed: what was heard before does not count."""
        self.heard = {self.process.host.broker_id}
        self._changed_s = self.world.now
        self.process.after(0.0, self._probe)

    def _end(self) -> None:
        self.world.say("broker %d is controller no more", self.process.host.broker_id)
        if self.process.term is self:
            self.process.term = None
        self.process.look_for_controller()

    def _situation(self) -> ElectionInput:
        facts = {one: self.facts[one] for one in self.facts if one in self.alive}
        heard = self.heard if self.cluster.rules.holds("R1 heard") else None
        since_s, compares = self._waits_since_s, self.cluster.rules.holds("R1 compare")
        waited = (
            not compares
            or not self.cluster.restart_wait_s
            or (since_s is not None and self.world.now - since_s >= self.cluster.restart_wait_s)
        )
        return ElectionInput(self.alive, facts, set(self.lost), set(self.leaving), heard, waited)

    def _decide(self) -> Decision | NoLeader | None:
        """What the dead are due first, then those who leave, then the preferred leader."""
        situation, state = self._situation(), self.state
        if state is None:
            return leader_election.new(REPLICAS, situation)
        found = leader_election.reconcile(state, REPLICAS, situation, unclean_allowed=False)
        if found is not None:
            return found
        for one in self.leaving:
            if one in state.isr and isinstance(
                left := leader_election.leaving(state, REPLICAS, one, situation), Decision
            ):
                return left
        if self._is_balancing and self.leaving.get(REPLICAS[0]) is None:
            self._is_balancing = False
            return leader_election.preferred(state, REPLICAS, situation)
        return None

    def leave(self, one: int, incarnation: int) -> str:
        """ControlledShutdown: "gone" when nothing rests on the broker any more."""
        if self.registered.get(one) != incarnation:
            return "unknown"
        if self.leaving.get(one) != incarnation:
            self.leaving[one] = incarnation
            self.doubt()
        return "stays" if self.state is None or one in self.state.isr else "gone"

    def _reconcile(self) -> None:
        found = self._decide()
        if isinstance(found, Waiting) and self._waits_since_s is None:
            self._waits_since_s = self.world.now
            self.process.after(self.cluster.restart_wait_s + AGAIN_S, self.doubt)
        elif isinstance(found, Decision) and found.leader >= 0:
            self._waits_since_s = None
        if not isinstance(found, Decision):
            self._is_settling = False
            self._tell()
            if self._is_unsettled:
                self._is_unsettled = False
                self.doubt()
            return
        self.world.say(
            "controller %d: leader %d, epoch %d, ISR %s: %s",
            self.process.host.broker_id,
            found.leader,
            found.leader_epoch,
            found.isr,
            found.reason,
        )
        state = found.applied(self.state, self.epoch)
        fences = [self.fence] if self.cluster.rules.holds("Z1 controller") else []
        version = state.version if self.cluster.rules.holds("Z1 version") or state.version < 0 else ANY

        def done(outcome: str, _: object) -> None:
            self._is_settling = self.is_writing = False
            if self.is_over:
                return
            if outcome == OK:
                self.state = replace(state, version=state.version + 1)
            self.doubt()

        self.is_writing = True
        self.process.session.multi([*fences, Put(STATE, data_of(state), version)], done)

    # --- Telling and asking -------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        for one, incarnation in self.alive.items():
            word = (self.state, tuple(self.alive.items()))
            if self._told.get(one) == word or not self._may_ask(one, "leader_and_isr"):
                continue

            def done(answer: Any, one: int = one, word: Any = word) -> None:
                self._asked_s.pop((one, "leader_and_isr"), None)
                if self.is_over or answer is ENDED or answer is REFUSED:
                    return
                if answer[0] == "stale":
                    self._end()
                elif answer[0] == "another":
                    self.doubt()
                else:
                    self._told[one] = word
                    if answer[0] == "ok":
                        self.lost.discard(one)
                    elif answer[0] == "failed" and word[0] == self.state:
                        self.world.say("broker %d cannot serve", one)
                        self.lost.add(one)
                        self.doubt()
                    self._tell()

            arguments = (self.epoch, incarnation, self.state, self.alive)
            self.process.ask(one, "leader_and_isr", arguments, done)

    def _may_ask(self, one: int, verb: str) -> bool:
        """One question of a kind at a time; an unanswered one is given up after a while."""
        if self.world.now - self._asked_s.get((one, verb), -9.0) < PATIENCE_S:
            return False
        self._asked_s[one, verb] = self.world.now
        return True

    def tick(self) -> None:
        if not self._knows_registry:
            self.doubt()
            return
        self._probe()
        self._tell()
        if self.world.draw.random() < BALANCE_SHARE:
            self._is_balancing = True
            self.doubt()

    def _probe(self) -> None:
        if self.is_over:
            return
        for one, incarnation in list(self.registered.items()):
            if self._may_ask(one, "ping") or self._asked_s[one, "ping"] < self._changed_s:
                self._asked_s[one, "ping"] = sent_s = self.world.now

                def done(answer: Any, one: int = one, incarnation: int = incarnation, sent_s: float = sent_s) -> None:
                    self._pinged(one, incarnation, sent_s, answer)

                self.process.ask(one, "ping", (), done)
            if one in self.alive and one not in self.facts and self._may_ask(one, "describe"):
                self.process.ask(one, "describe", (), partial(self._described, one))

    def _pinged(self, one: int, incarnation: int, sent_s: float, answer: Any) -> None:
        self._asked_s.pop((one, "ping"), None)
        if self.is_over or self.registered.get(one) != incarnation:
            return
        is_new = one not in self.heard and sent_s >= self._changed_s
        if is_new and isinstance(answer, tuple) and answer[1] == incarnation:
            self.heard.add(one)
            self.doubt()
        if answer is REFUSED:
            if incarnation not in self.trusted and self.refused.get(one) != incarnation:
                self.world.say("broker %d refuses: it counts as dead", one)
                self.refused[one] = incarnation
                self._hear_again()
                self._told.pop(one, None)
                self.doubt()
        elif answer is not ENDED and answer[1] == incarnation == self.refused.get(one):
            if not self.cluster.rules.holds("R6 readmit"):
                return
            self.world.say("broker %d answers: it was not dead", one)
            del self.refused[one]
            self.trusted.add(incarnation)
            self._told.clear()
            self.doubt()

    def silent(self, one: int) -> None:
        """The connection has ended: that it lives is not known any more."""
        self.heard.discard(one)
        self._asked_s.pop((one, "ping"), None)

    def _described(self, one: int, answer: Any) -> None:
        self._asked_s.pop((one, "describe"), None)
        if self.is_over or answer is ENDED or answer is REFUSED or answer[1] != self.registered.get(one):
            return
        self.facts[one] = answer[2]
        self.doubt()
