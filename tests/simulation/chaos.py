"""What goes wrong: one fault after the other, drawn from the seed, each with its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from klog.record.batch import HEADER_BYTES
from tests.faulty_filesystem import FaultyFileSystem
from tests.simulation.broker import CONTROLLER, BrokerProcess, Host, new_disk
from tests.simulation.laws import content
from tests.simulation.states import STATE, state_of

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

Key = TypeVar("Key")

WEIGHTS: Mapping[str, float] = {
    "kill": 3,
    "power": 2,
    "power of all": 0.5,
    "kill all": 0.7,
    "empty": 1,
    "empty and kill": 0.5,
    "tear": 0.5,
    "rot and kill": 0.5,
    "stop": 0.5,
    "shut down": 1,
    "pause": 2,
    "cut": 2,
    "isolate": 1,
    "lie": 1,
    "loss": 1,
    "slow disk": 1,
    "zookeeper cut": 1.5,
    "zookeeper away": 0.7,
    "zookeeper slow": 0.7,
    "expire": 1,
}


class Chaos:
    def __init__(self, cluster: Cluster, until_s: float, weights: Mapping[str, float], every_s: float) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.until_s = until_s
        self.done: Counter[str] = Counter()
        self._every_s = every_s
        self._names = tuple(weights)
        self._weights = tuple(weights.values())
        self._ends: list[Callable[[], object]] = []
        self.world.after(0.8 + self.world.draw.random(), self._strike)

    def _strike(self) -> None:
        if self.world.now >= self.until_s:
            return
        draw = self.world.draw
        name = draw.choices(self._names, self._weights)[0]
        self.done[name] += 1
        getattr(self, "_" + name.replace(" ", "_"))()
        self.world.after(draw.expovariate(1 / self._every_s), self._strike)

    def heal(self) -> None:
        """Everything that was done ends now; whoever is down starts."""
        self.world.say("all faults end")
        ends, self._ends = self._ends, []
        for end in ends:
            end()
        for host in self.cluster.hosts.values():
            if host.process is None:
                host.start()

    # --- Parts ----------------------------------------------------------------------------------------------------

    def _host(self) -> Host:
        """Anybody, the leader as often as all others."""
        hosts = tuple(self.cluster.hosts.values())
        led = [host for host in hosts if host.process is not None and host.process.replica.partition is not None]
        if led and self.world.draw.random() < 0.4:
            return self.world.draw.choice(led)
        return self.world.draw.choice(hosts)

    def _for_a_while(self, shortest_s: float, longest_s: float, end: Callable[[], object]) -> None:
        open_ = [True]

        def once() -> None:
            if open_:
                open_.clear()
                end()

        self._ends.append(once)
        self.world.after(shortest_s + self.world.draw.random() * (longest_s - shortest_s), once)

    def _away(self, host: Host) -> None:
        """Back soon, or quicker than anybody notices."""
        longest_s = self.world.draw.choice((0.05, 0.5, 3.0))
        self._for_a_while(0.01, longest_s, host.start)

    def may_lose_disk(self, host: Host) -> bool:
        """Another member of the ISR has run without interruption and runs: nothing rests on this disk alone.

        Nor is an ISR change on its way: one that makes this broker the only member, or that adds an incarnation whose
        disk is exchanged before it arrives, would leave nobody who has everything. That is a disk replaced within one
        write to ZooKeeper, and beyond what is promised.
        """
        state = state_of(self.cluster.registry.nodes.get(STATE))
        processes = [other.process for other in self.cluster.hosts.values() if other.process is not None]
        if state is None or host.process is None:
            return False
        if any(_writes(one) for one in processes):
            return False
        return any(
            other is not host
            and _runs(other.process)
            and other.process.replica.log is not None
            and state.ran_on(other.broker_id, other.process.incarnation)
            for other in self.cluster.hosts.values()
            if other.process is not None
        )

    # --- Faults ---------------------------------------------------------------------------------------------------

    def _kill(self) -> None:
        self._kill_one(self._host())

    def _kill_one(self, host: Host) -> None:
        self.world.say("! broker %d is killed", host.broker_id)
        host.die(host.disk.kill())
        self._away(host)

    def _kill_all(self) -> None:
        for host in self.cluster.hosts.values():
            self._kill_one(host)

    def _power(self) -> None:
        host = self._host()
        if self.cluster.log_config.flush_messages == 1 or self.may_lose_disk(host):
            self._power_one(host)

    def _power_one(self, host: Host) -> None:
        self.world.say("! broker %d loses power", host.broker_id)
        host.die(host.disk.crash(self.world.draw.randrange(1 << 30)))
        self._away(host)

    def _power_of_all(self) -> None:
        if self.cluster.log_config.flush_messages != 1 and not self.cluster.flushes_in_time:
            return
        for host in self.cluster.hosts.values():
            self._power_one(host)

    def _empty(self) -> None:
        host = self._host()
        if self.may_lose_disk(host):
            self._empty_one(host)
            self._away(host)

    def _empty_one(self, host: Host) -> None:
        self.world.say("! broker %d gets an empty disk", host.broker_id)
        if host.process is not None:
            self.cluster.emptied.add(host.process.incarnation)
        host.die(new_disk())

    def _empty_and_kill(self) -> None:
        """Back at once with an empty disk, unheard perhaps, and soon after that nobody else is left."""
        host = self._host()
        if not self.may_lose_disk(host):
            return
        if self.world.draw.random() < 0.5:
            self._cut_ways([(host.broker_id, other) for other in self.cluster.hosts if other != host.broker_id])
        self._empty_one(host)
        self.world.after(0.02, host.start)
        wait_s = 0.03 + self.world.draw.random() * 0.2
        for other in self.cluster.hosts.values():
            if other is not host:
                self.world.after(wait_s, self._kill_one, other)

    def _tear(self) -> None:
        """One loses power, the others are killed in the same moment."""
        host = self._host()
        if self.may_lose_disk(host):
            self._power_one(host)
            for other in self.cluster.hosts.values():
                if other is not host:
                    self._kill_one(other)

    def _set_back(self) -> None:
        """One gets the disk that it had a while ago (a snapshot) when all are killed, and is the first to come back."""
        host = self._host()
        if host.process is None or host.process.replica.log is None:
            return
        self.world.say("! the disk of broker %d is copied", host.broker_id)
        self.world.after(0.2 + self.world.draw.random(), self._put_back, host, host.disk.crash())

    def _put_back(self, host: Host, disk: FaultyFileSystem) -> None:
        if not self.may_lose_disk(host):
            return
        self.world.say("! broker %d is killed, and its disk is set back", host.broker_id)
        host.die(disk)
        self.world.after(0.02, host.start)
        for other in self.cluster.hosts.values():
            if other is not host:
                self.world.say("! broker %d is killed", other.broker_id)
                other.die(other.disk.kill())
                self._for_a_while(0.3, 3.0, other.start)

    def _flip_below(self, host: Host, batches: Sequence[int]) -> None:
        """A bit of one of the batches at these addresses, in what its CRC covers."""
        if not batches:
            return
        address = self.world.draw.choice(batches)
        first, file = max(
            (
                (first, file)
                for path, file in host.disk.names.items()
                if path.endswith(".log") and (first := int(path.rpartition("/")[2][:-4])) <= address
            ),
            key=lambda found: found[0],
        )
        file.data[address - first + HEADER_BYTES - 1] ^= 1
        file.durable = bytes(file.data)

    def _rot_and_kill(self) -> None:
        """One stops cleanly and a bit of its log flips on the disk; the others are killed in the same moment."""
        host = self._host()
        process = host.process
        if not self.may_lose_disk(host) or process is None or process.is_paused or process.replica.log is None:
            return
        self.world.say("! broker %d stops, and a bit of its disk flips", host.broker_id)
        replica = process.replica
        replica.checkpoint()
        # What rots above the checkpoint looks like a write that was torn.
        batches = [address for address in content(process.replica.log) if address < replica.checkpointed]
        host.stop()
        self._flip_below(host, batches)
        self._away(host)
        for other in self.cluster.hosts.values():
            if other is not host:
                self._kill_one(other)

    def _stop(self) -> None:
        host = self._host()
        if host.process is not None and not host.process.is_paused:
            self.world.say("! broker %d stops", host.broker_id)
            host.stop()
            self._away(host)

    def _shut_down(self) -> None:
        """Stops in good order: whatever rests on it moves first.

        Where messages are never flushed, not in the moment in which another loses power: whoever is not known to be
        dead yet would be all that is left in the ISR.
        """
        host = self._host()
        process = host.process
        if process is None or process.is_paused:
            return
        if not self.cluster.flushes_in_time and any(other.process is None for other in self.cluster.hosts.values()):
            return
        self.world.say("! broker %d shuts down", host.broker_id)
        process.leave()
        self._for_a_while(1.0, 3.0, host.start)

    def _pause(self) -> None:
        process = self._host().process
        if process is None or process.is_paused:
            return
        self.world.say("! %s is paused", process.name)
        process.pause()

        def end() -> None:
            if process.is_alive:
                self.world.say("! %s goes on", process.name)
                process.resume()

        self._for_a_while(0.1, self.world.draw.choice((1.0, 4.0)), end)

    def _cut(self) -> None:
        source, target = self.world.draw.sample(tuple(self.cluster.hosts), 2)
        ways = [(source, target)] if self.world.draw.random() < 0.5 else [(source, target), (target, source)]
        self._cut_ways(ways)

    def _isolate(self) -> None:
        one = self._host().broker_id
        others = [other for other in self.cluster.hosts if other != one]
        self._cut_ways([(one, other) for other in others] + [(other, one) for other in others])

    def _cut_ways(self, ways: list[tuple[int, int]]) -> None:
        self._counted(self.cluster.network.cut, ways, "cut off: %s", 0.2, 3.0)

    def _lie(self) -> None:
        one = self._host().broker_id
        self._counted(self.cluster.network.lying, [one], "connections to %s are refused", 0.1, 2.0)

    def _zookeeper_cut(self) -> None:
        one = self._host().broker_id
        self._counted(self.cluster.registry.cut, [one], "cut off from ZooKeeper: %s", 0.1, 4.0)

    def _zookeeper_away(self) -> None:
        self._counted(self.cluster.registry.troubles, ["away"], "ZooKeeper: %s", 0.2, 3.0)

    def _zookeeper_slow(self) -> None:
        self._counted(self.cluster.registry.troubles, ["slow"], "ZooKeeper: %s", 0.2, 3.0)

    def _counted(
        self, counts: dict[Key, int], keys: list[Key], words: str, shortest_s: float, longest_s: float
    ) -> None:
        """One more fault on each for a while."""
        self.world.say("! " + words, keys)
        for key in keys:
            counts[key] = counts.get(key, 0) + 1

        def end() -> None:
            self.world.say("! no more: " + words, keys)
            for key in keys:
                counts[key] -= 1

        self._for_a_while(shortest_s, longest_s, end)

    def _kill_follower(self) -> None:
        """One that is not the controller, when all three are in sync."""
        nodes = self.cluster.registry.nodes
        state, holder = state_of(nodes.get(STATE)), nodes.get(CONTROLLER)
        if state is None or holder is None or len(state.isr) < len(self.cluster.hosts):
            return
        others = [one for one in state.isr if one not in (state.leader, holder.data[0])]
        self._kill_one(self.cluster.hosts[self.world.draw.choice(others)])

    def _loss(self) -> None:
        network = self.cluster.network
        network.loss = 0.1 + self.world.draw.random() * 0.2

        def end() -> None:
            network.loss = 0.0

        self._for_a_while(0.2, 1.5, end)

    def _slow_disk(self) -> None:
        host = self._host()
        host.slow_disk_s = 0.1 + self.world.draw.random()

        def end() -> None:
            host.slow_disk_s = 0.0

        self._for_a_while(0.5, 2.0, end)

    def _expire(self) -> None:
        process = self._host().process
        if process is not None and not process.session.is_expired:
            self.cluster.registry.expire(process.session.number)


def _writes(process: BrokerProcess) -> bool:
    """Whether a change of the ISR is on its way, a leader's or the controller's."""
    partition, term = process.replica.partition, process.term
    return (partition is not None and partition.change is not None) or (term is not None and term.is_writing)


def _runs(process: BrokerProcess | None) -> bool:
    return process is not None and not process.is_paused
