"""The thread of a consumer that keeps its membership: rebalances, commits, enters again after a lost session.

An event (a consumer, a broker or a topic comes or goes; the session is suspended, reconnected or expired) sets a flag
and wakes the thread, which reads everything again: an event that comes twice or late does no harm.

A rebalance is the paper's: read the registries, compute Algorithm 1, give up the partitions of others, claim ours,
start to read them. If another consumer still owns one because it has not seen the change yet, this one gives up
everything, and tries again after a while. Partitions that stay with their thread are not touched: the outcome is the
same, and they are read on.

States, by what the thread does next:

    expired or evicted -> enter again under a new id -> changed -> rebalance -> quiet (commits, confirms the lease)
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any

from klog.client.consumer_settings import ConsumerSettings
from klog.client.log_ends import ask_ends
from klog.client.membership import Evicted, Membership, View
from klog.client.positions import EARLIEST, LATEST
from klog.client.servers import Servers, librdkafka_servers
from klog.client.streams import Lease, MessageStream
from klog.client.subscription import Subscription
from klog.coordination.session import SessionState
from klog.coordination.zookeeper import ZooKeeper
from klog.coordination.zookeeper_access import ZooKeeperServers
from klog.errors import KlogError, OwnershipConflict, RebalanceFailed, SessionLost, ZooKeeperError
from klog.names import TopicPartition

GRACE_S = 1.0
"""How long giving up a partition waits until the message in hand is done."""
PENDING_RETRY_S = 0.2
"""Between two attempts to begin with a partition that has no leader yet."""
EVICTED_PAUSE_S = 1.0
"""A consumer that is removed once enters again at once; one that is removed repeatedly does not flood the registry."""
ENDS_TIMEOUT_S = 1.0
"""Less than any lease: a request without an answer is repeated in the next round."""
CONFIRMS_A_SESSION = 4
"""The lease is renewed this many times per session time-out: one lost or late renewal costs nothing."""

_log = logging.getLogger("klog.consumer")


class Rebalancer:
    """Owns the session, the membership and the thread, and gives the streams partitions. `start`, then `stop` once."""

    def __init__(
        self,
        zookeeper: str,
        group: str,
        subscription: Subscription,
        streams: Collection[MessageStream],
        lease: Lease,
        settings: ConsumerSettings,
    ) -> None:
        self._group = group
        self._settings = settings
        self._streams = streams
        self._stream_of = {(stream.topic, stream.number): stream for stream in streams}
        self._lease = lease
        self._wakeup = threading.Condition()
        self._is_changed = True
        self._is_expired = False
        self._is_stopping = False
        self._first_done = threading.Event()
        self._first_error: KlogError | None = None
        self._reading: dict[TopicPartition, MessageStream] = {}
        """Partitions that are claimed and given to a stream."""
        self._view = View({}, {}, {}, frozenset(), "")
        """By which what we own is claimed."""
        self._left: dict[TopicPartition, int] = {}
        """Where reading stopped, of partitions that are still claimed: the answer to their release was lost."""
        self._saved: dict[TopicPartition, int] = {}
        """The offsets that were committed last."""
        self._pending: set[TopicPartition] = set()
        """Owned but not being read: they have no leader, or no broker is alive."""
        self._bootstrap: frozenset[str] = frozenset()
        self._commit_due = time.monotonic() + settings.auto_commit_interval_s
        self._confirm_due = 0.0
        self._zookeeper = ZooKeeper(
            ZooKeeperServers(zookeeper, settings.access), settings.session_timeout_ms, self._state_changed
        )
        self.membership = Membership(self._zookeeper, group, subscription, lease, self._changed, settings)
        self._thread = threading.Thread(target=self._run, name=f"klog-consumer-{group}", daemon=True)

    # --- from other threads -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Enter the group and wait for the first rebalance. CannotConnect, GroupIsHeld, RebalanceFailed and others."""
        self._zookeeper.start(self._settings.connection_timeout_ms / 1000)
        try:
            self._zookeeper.check_cluster()  # nothing is written where none is
            self.membership.enter()
            self._thread.start()
            self._first_done.wait()
            if self._first_error is not None:
                raise self._first_error
        except BaseException:
            self.stop(in_hand=False)
            raise

    def stop(self, *, in_hand: bool) -> None:
        """Commit (if automatic), give everything up, leave. With ``in_hand`` the message in hand counts as done."""
        with self._wakeup:
            if self._is_stopping:
                return
            self._is_stopping = True
            self._wakeup.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        try:
            offsets = {**self._left, **self._take(list(self._reading), in_hand=in_hand)}
            self.membership.release(list(self.membership.owned), offsets if self._settings.auto_commit else {})
            self.membership.leave()
        except ZooKeeperError as error:
            _log.warning("group %s: left without a word: %s", self._group, error.message)
        finally:
            self._zookeeper.stop()
            for stream in self._streams:
                stream.close()

    def commit(self, offsets: Mapping[TopicPartition, int] | None) -> set[TopicPartition]:
        """Commit these offsets, or every partition's delivered one. Returns the partitions that another has taken."""
        if offsets is None:
            offsets = self._positions(done=False)
            lost = self.membership.commit(offsets, only_ours=True)
        else:
            lost = self.membership.commit(offsets)
        self._saved.update({one: offset for one, offset in offsets.items() if one not in lost})
        if lost:
            self._changed()
        return lost

    @property
    def bootstrap(self) -> str:
        """The brokers that were alive when the streams were opened."""
        return Servers(",".join(sorted(self._bootstrap)), self._settings.security)

    def stream_reading(self, partition: TopicPartition) -> MessageStream | None:
        return self._reading.get(partition)

    def _changed(self) -> None:
        with self._wakeup:
            self._is_changed = True
            self._wakeup.notify_all()

    def _state_changed(self, state: SessionState) -> None:
        """Called in ZooKeeper's thread."""
        with self._wakeup:
            if state is SessionState.EXPIRED:
                self._is_expired = True
            elif state is SessionState.CONNECTED:
                self._is_changed = True
            self._wakeup.notify_all()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        first_until = time.monotonic() + self._settings.connection_timeout_ms / 1000
        evicted = float("-inf")
        try:
            while not self._is_stopping:
                try:
                    self._step()
                except Evicted as error:
                    _log.warning("%s; it enters again", error.message)
                    self._is_expired = True
                    if time.monotonic() - evicted < EVICTED_PAUSE_S:
                        with self._wakeup:
                            self._wakeup.wait_for(lambda: self._is_stopping, EVICTED_PAUSE_S)
                    evicted = time.monotonic()
                except ZooKeeperError as error:
                    is_first = not self._first_done.is_set()
                    if is_first and not (isinstance(error, SessionLost) and time.monotonic() < first_until):
                        raise
                    _log.info("group %s: %s", self._group, error.message)
                    self._is_changed = True
                    self._pause(PENDING_RETRY_S)
        except KlogError as error:
            self._end(error)
        except Exception as error:
            _log.exception("group %s: the consumer's thread has ended", self._group)
            self._end(KlogError(f"group {self._group!r}: the consumer's thread has ended: {error!r}"))
        finally:
            self._first_done.set()

    def _end(self, error: KlogError) -> None:
        """End all streams; their iterators raise ``error``."""
        if not self._first_done.is_set():
            self._first_error = error
            return
        _log.error("group %s: %s", self._group, error.message)
        self._lease.until = 0.0
        for stream in self._streams:
            stream.fail(error)

    def _step(self) -> None:
        """Do one thing that is due, or wait until one is."""
        now = time.monotonic()
        if self._is_expired:
            self._enter_again()
        elif self._is_changed:
            self._rebalance()
            self._first_done.set()
        elif now >= self._confirm_due:
            self._confirm()
        elif self._settings.auto_commit and now >= self._commit_due:
            self._commit_due = now + self._settings.auto_commit_interval_s
            self._commit_done()
        elif self._pending and self._begin(self._pending):
            pass
        else:
            due = [self._confirm_due]
            if self._settings.auto_commit:
                due.append(self._commit_due)
            if self._pending:
                due.append(now + PENDING_RETRY_S)
            with self._wakeup:
                if not (self._is_changed or self._is_expired or self._is_stopping):
                    self._wakeup.wait(max(0.0, min(due) - now))

    def _pause(self, seconds: float) -> None:
        """Unless it is time to stop, or the session is over."""
        with self._wakeup:
            self._wakeup.wait_for(lambda: self._is_stopping or self._is_expired, seconds)

    def _confirm(self) -> None:
        self.membership.confirm()
        self._confirm_due = time.monotonic() + self._settings.session_timeout_ms / 1000 / CONFIRMS_A_SESSION

    def _enter_again(self) -> None:
        """The session was lost, or another client fenced us: our partitions may have other owners."""
        self._is_expired = False
        self._lease.until = 0.0
        try:
            self._left.update(self._positions(done=True))
            self._take(list(self._reading), in_hand=False, grace_s=0.0)
            self._pending.clear()
            self._saved.clear()
            self.membership.forget(self._left if self._settings.auto_commit else {})
            self._left.clear()
            self.membership.leave()
            self.membership.enter()
        except SessionLost:
            self._is_expired = True
            raise
        self._is_changed = True
        self._confirm_due = 0.0

    # --- rebalance ----------------------------------------------------------------------------------------------------

    def _rebalance(self) -> None:
        """Rebalance until we own our share by Algorithm 1."""
        begun = time.monotonic()
        for attempt in range(1, self._settings.rebalance_max_retries + 1):
            if self._is_stopping or self._is_expired:
                return
            self._is_changed = False
            self._confirm()
            view = self.membership.look()
            self._follow_brokers(view)
            old = self.membership.outdated(view)
            gone = [
                one for one in self.membership.owned if one in old or view.wanted.get(one) != self._view.wanted[one]
            ]
            self._give_up(gone)
            ours = [one for one in view.wanted if one not in self.membership.owned]
            try:
                self.membership.claim(view, ours)
            except OwnershipConflict as error:
                _log.info("%s (try %d)", error.message, attempt)
                conflict = error
                self._give_up(list(self.membership.owned))
                self._pause(self._settings.rebalance_backoff_s)
                continue
            self._view = view
            self._begin([one for one in view.wanted if one not in self._reading])
            if gone or ours:
                _log.info(
                    "group %s: rebalanced in %d ms, try %d: reads %s",
                    self._group,
                    (time.monotonic() - begun) * 1000,
                    attempt,
                    ", ".join(map(str, sorted(view.wanted))) or "nothing",
                )
            return
        failed = RebalanceFailed(
            f"{conflict.message} after {self._settings.rebalance_max_retries} tries",
            hint="rebalance.max.retries x rebalance.backoff.ms is to be longer than a ZooKeeper session",
        )
        if not self._first_done.is_set():
            raise failed
        _log.warning("%s; it goes on trying", failed.message)
        self._is_changed = True

    def _give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading these partitions, commit their delivered offsets, release them."""
        self._left.update(self._take([one for one in partitions if one in self._reading], in_hand=True))
        offsets = {one: self._left[one] for one in partitions if one in self._left}
        self._pending.difference_update(partitions)
        self.membership.release(partitions, offsets if self._settings.auto_commit else {})
        for one in partitions:
            self._left.pop(one, None)
            self._saved.pop(one, None)

    def _take(
        self, partitions: Collection[TopicPartition], *, in_hand: bool, grace_s: float = GRACE_S
    ) -> dict[TopicPartition, int]:
        """Take them from their streams. Returns where the next reader continues. Waits a while for messages in hand."""
        deadline = time.monotonic() + grace_s
        found: dict[TopicPartition, int] = {}
        for stream in self._streams:
            share = [one for one in partitions if self._reading.get(one) is stream]
            if share:
                found.update(stream.take(share, deadline, in_hand=in_hand))
        for one in partitions:
            self._reading.pop(one, None)
        return found

    def _begin(self, partitions: Collection[TopicPartition]) -> bool:
        """Give claimed partitions to their streams. Returns whether all have begun; the others stay pending."""
        if not self._bootstrap:
            self._pending = set(partitions)
            return False
        committed = self.membership.committed(partitions)
        starts = {one: self._left.get(one, committed.get(one)) for one in partitions}
        from_start = {one for one in partitions if self._settings.from_smallest or one in self._view.newcomers}
        asked = {one: EARLIEST if one in from_start else LATEST for one, start in starts.items() if start is None}
        fresh: dict[TopicPartition, int] = {}
        # Resolve the start as well: librdkafka would take half a second longer to find it.
        for one, end in ask_ends(self.bootstrap, asked, ENDS_TIMEOUT_S).items() if asked else ():
            if isinstance(end, int):
                starts[one] = fresh[one] = end
            elif one in from_start:
                starts[one] = EARLIEST
            else:
                _log.info("group %s: where does %s end? %s", self._group, one, end.message)
        ready = {one: start for one, start in starts.items() if start is not None}
        waiting = {one for one, start in starts.items() if start is None}
        if fresh and self._settings.auto_commit:
            # From now on no message may be missed, even if the next reader begins before one was delivered.
            self.membership.commit(fresh)
        self._saved.update(committed | fresh)
        by_stream: dict[MessageStream, dict[TopicPartition, int]] = {}
        for one, start in ready.items():
            number = self._view.wanted[one]
            stream = self._stream_of.get((None, number)) or self._stream_of[one.topic, number]  # None: of a filter
            by_stream.setdefault(stream, {})[one] = start
        for stream, share in by_stream.items():
            if not stream.is_open:
                stream.open(self._librdkafka)
            stream.give(share)
            for one in share:
                self._reading[one] = stream
                self._left.pop(one, None)
        self._pending = waiting
        return not waiting

    def _follow_brokers(self, view: View) -> None:
        """librdkafka learns of brokers from those that it knows; give it new ones when none of those is left."""
        now = frozenset(filter(None, view.bootstrap.split(",")))
        if not now or (now & self._bootstrap):
            return
        moved, self._bootstrap = bool(self._bootstrap), now
        if moved:
            _log.info("group %s: the brokers have other addresses: %s", self._group, view.bootstrap)
            for stream in self._streams:
                if stream.is_open:
                    stream.open(self._librdkafka)

    @property
    def _librdkafka(self) -> dict[str, Any]:
        return {**self._settings.librdkafka, **librdkafka_servers(self.bootstrap)}

    # --- commits ------------------------------------------------------------------------------------------------------

    def _positions(self, *, done: bool) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for stream in self._streams:
            found.update(stream.positions(done=done))
        return found

    def _commit_done(self) -> None:
        """Commit offsets that are done and not committed yet. Evicted if another consumer has taken a partition."""
        news = {one: offset for one, offset in self._positions(done=True).items() if self._saved.get(one) != offset}
        lost = self.membership.commit(news, only_ours=True)
        self._saved.update({one: offset for one, offset in news.items() if one not in lost})
        if lost:
            self.membership.confirm()
            named = ", ".join(map(str, sorted(lost)))
            raise Evicted(f"group {self._group!r}: {named} is another consumer's by now, or its topic has gone")
