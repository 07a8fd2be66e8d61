"""The thread that reads as a member of a group: what it has written is committed, and nothing else.

Rules:
- A place is committed after the sink has taken all up to it. So whatever ends this process, what was committed was
  shown; what was shown and not committed is shown again, by the member that has the partition then.
- Only places of partitions that this member has are committed: a late commit would put another member's place back.
- Where the group has committed nothing in a partition, reading begins where the options say, and that place is
  committed at once: a member that comes later goes on there.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Iterable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Assigned

from klog.errors import GroupIsHeld, KlogError, TimedOut
from klog.names import TopicPartition
from klog.tools.message_formatter import Message
from klog.tools.reader import Reader
from klog.tools.time_merge import Partition

FOR_GOOD = (
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    KafkaError.INVALID_GROUP_ID,
    KafkaError.INVALID_SESSION_TIMEOUT,
    KafkaError.GROUP_MAX_SIZE_REACHED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError._FATAL,
)
"""What a group says to a member that it will not have. All else librdkafka tries again."""

COMMIT_EVERY_S = 1.0
"""While messages come. Where nothing comes, what was shown is committed at once."""

MEMBERS_SILENT_S = 45.0
"""A group waits so long, as most clients have it, for a member that has gone without a word: a join may take that."""

NOT_MINE = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError._STATE,
)
"""What a commit meets where the group has gone on without this member: others show it again."""


class GroupReader(Reader):
    """Reads what the group gives this member. It joins in `run` and has left when that ends."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        """As `Reader`; ``options.group`` is the group's name. Where a span begins counts where nothing is committed."""
        self._owned: set[Partition] = set()
        self._revoked: set[Partition] = set()
        """Partitions that were taken away while the last run was fetched."""
        self._topics: list[str] = []
        self._places: dict[Partition, int] = {}
        """Where to go on, of partitions this member has, and that is not committed."""
        self._committed_at = time.monotonic()
        self._has_joined = False
        self._joining_since = 0.0
        self._joining_told = False
        super().__init__(*arguments, **keywords)

    def _settings(self, bootstrap: str) -> dict[str, Any]:
        settings = {**super()._settings(bootstrap), "group.id": self._options.group, "on_commit": self._on_commit}
        self._is_cooperative = "cooperative" in str(settings.get("partition.assignment.strategy", ""))
        return settings

    def _read(self) -> None:
        self._ends = {one: span.end for one, span in self._spans.items() if span.end is not None}
        self._joining_since = self._last_heard = time.monotonic()
        self._subscribe(one.topic for one in self._spans)
        try:
            while not self._is_done and not (self._has_joined and self._ends and not self._open):
                self._hear_of_topics()
                run = self._next_run()
                self._write(run)
                if self._places and (not run or time.monotonic() - self._committed_at >= COMMIT_EVERY_S):
                    self._commit(wait=False)
        finally:
            self._commit(wait=True)

    def _subscribe(self, topics: Iterable[str]) -> None:
        """To these too."""
        wanted = list(dict.fromkeys([*self._topics, *topics]))
        if wanted == self._topics:
            return
        self._topics = wanted
        self._consumer.subscribe(wanted, on_assign=self._given, on_revoke=self._taken, on_lost=self._lost)

    def _take_on(self, places: list[Partition]) -> None:
        self._subscribe(topic for topic, _ in places)

    def _let_go(self, topic: str) -> None:
        if topic not in self._topics:
            return
        self._note(f"topic {topic} was deleted")
        # Not committed any more: a topic that has been made meanwhile would be read from there on.
        self._places = {place: offset for place, offset in self._places.items() if place[0] != topic}
        left = [one for one in self._topics if one != topic]
        self._topics = []
        if left:
            self._subscribe(left)

    def abandon(self) -> None:
        """Leave the group although the reading thread hangs in a write to a blocked output."""
        self._commit(wait=True)
        self._consumer.close()

    # --- What the group says ---

    def _given(self, consumer: Consumer, partitions: list[Assigned]) -> None:
        """Go on behind what is committed. Called by librdkafka while it is asked for messages."""
        committed = {(one.topic, one.partition): one.offset for one in self._committed(partitions)}
        new: list[Partition] = []
        for one in partitions:
            place = TopicPartition(one.topic, one.partition)
            span = self._spans.get(place)
            one.offset = committed[place]
            if one.offset < 0:
                one.offset = OFFSET_BEGINNING if span is None else span.begin
                if span is not None:
                    self._places[place] = span.begin
                    new.append(place)
            if place in self._ends:
                self._open.add(place)
        if self._is_cooperative:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)
        self._assigned = {(one.topic, one.partition): one.offset for one in partitions}
        self._owned.update(self._assigned)
        self._has_joined = True
        self._last_heard = time.monotonic()
        names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(self._owned)) or "no partition"
        self._note(f"group {self._options.group}: this member has {names}")
        if new and self._options.offset is None:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(new))
            self._note(f"nothing is committed of {names}: only new messages are shown (-o start shows all)")

    def _taken(self, consumer: Consumer, partitions: list[Assigned]) -> None:
        self._commit(wait=True)
        self._drop(partitions)

    def _lost(self, consumer: Consumer, partitions: list[Assigned]) -> None:
        names = ", ".join(sorted(f"{one.topic}-{one.partition}" for one in partitions))
        self._note(f"group {self._options.group}: continued without this member; others read {names} now")
        self._drop(partitions)

    def _drop(self, partitions: list[Assigned]) -> None:
        places = {(one.topic, one.partition) for one in partitions}
        self._owned -= places
        self._open -= places
        self._paused -= places
        self._revoked |= places
        for place in places:
            self._places.pop(place, None)

    def _committed(self, partitions: list[Assigned]) -> list[Assigned]:
        """What the group has committed; tried again while its coordinator moves."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                found = self._consumer.committed(partitions, timeout=max(deadline - time.monotonic(), 0.1))
                errors = [one.error for one in found if one.error is not None]
                if not errors:
                    return list(found)
                error = errors[0]
            except KafkaException as failed:
                error = failed.args[0]
            if time.monotonic() > deadline or self._stop.wait(0.1):
                raise KlogError(f"the committed offsets of group {self._options.group} cannot be read: {error.str()}")

    # --- Reading and committing ---

    def _next_run(self, wait_s: float = 0.1) -> list[Message]:
        self._revoked.clear()
        run = super()._next_run(wait_s)
        if self._revoked - self._owned:
            # Fetched just before they were taken away: their new owner shows them.
            run = [one for one in run if (one.topic(), one.partition()) in self._owned]
        return run

    def _check_patience(self) -> None:
        if self._has_joined:
            super()._check_patience()
            return
        if not self._topics:
            self._joining_since = time.monotonic()
        waited_s = time.monotonic() - self._joining_since
        text = f"group {self._options.group}: this member has not been admitted for"
        if waited_s > self._timeout_s and not self._joining_told:
            self._joining_told = True
            self._note(
                f"{text} {self._timeout_s:g} s: it waits for another member, or no broker serves it; still trying"
            )
        if self._ends and waited_s > self._timeout_s + MEMBERS_SILENT_S:
            raise TimedOut(f"{text} {waited_s:.0f} s", hint="`klog status` may say why")

    def _heard(self, message: Message) -> None:
        error = message.error()
        if error.code() == KafkaError._MAX_POLL_EXCEEDED:
            self._note(f"group {self._options.group}: output was blocked for too long; joining again")
        elif error.code() in FOR_GOOD:
            raise self._refusal(error)
        elif message.topic() is None or message.partition() < 0:
            self._on_error(error)
        else:
            super()._heard(message)

    def _refusal(self, error: KafkaError) -> KlogError:
        group = self._options.group
        if error.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL:
            return GroupIsHeld(
                f"group {group} is in use by members of another protocol, or with another assignment strategy",
                hint=f"`klog group describe {shlex.quote(group or '')}` shows its members",
            )
        return KlogError(f"group {group}: {error.str()}")

    def _write(self, messages: list[Message]) -> list[Message]:
        done = super()._write(messages)
        for place, offset in {(one.topic(), one.partition()): one.offset() for one in done}.items():
            self._places[place] = offset + 1
        return done

    def _commit(self, *, wait: bool) -> None:
        """Commit where to go on; what fails for good is reported, and the next reader shows it again."""
        places, self._places = self._places, {}
        self._committed_at = time.monotonic()
        if not places:
            return
        offsets = [Assigned(*place, offset) for place, offset in places.items()]
        try:
            answer = self._consumer.commit(offsets=offsets, asynchronous=not wait)
            errors = [one.error for one in answer or () if one.error is not None]
        except KafkaException as failed:
            errors = [failed.args[0]]
        if errors:
            self._not_committed(errors[0], places)

    def _on_commit(self, error: KafkaError | None, partitions: list[Assigned]) -> None:
        """What became of a commit that was not waited for; tried again with the next one, unless that is newer."""
        failed = error or next((one.error for one in partitions if one.error is not None), None)
        if failed is None:
            return
        places = {(one.topic, one.partition): one.offset for one in partitions}
        kept = {place: offset for place, offset in places.items() if place in self._owned and place[0] in self._topics}
        self._places = kept | self._places

    def _not_committed(self, error: KafkaError, places: Collection[Partition]) -> None:
        names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(places))
        text = f"group {self._options.group}: the last messages shown of {names} are not committed: {error.str()}"
        if error.code() in NOT_MINE:
            self._note(f"{text}; the member that reads them now shows them again")
        else:
            raise KlogError(text)

    def _go_on_at(self, place: Partition, offset: int) -> None:
        self._places[place] = offset
        if not self._is_cooperative:
            super()._go_on_at(place, offset)
            return
        self._consumer.incremental_unassign([Assigned(*place)])
        self._consumer.incremental_assign([Assigned(*place, offset)])
