"""One tree of errors, ordered by origin: the peer's bytes, the caller's request, the host, the disk.

Every error carries four things, so that each border can translate it without a table of its own. A class names those in
which it differs from its base:

* ``wire``       the protocol's error code (Kafka's numbers), what a client is answered;
* ``code``       the machine name in ``--output json`` errors: of a class with a ``wire`` of its own the class's name,
                 unless it gives another;
* ``retriable``  whether the same request may succeed later;
* ``exit_code``  what a command exits with: 1 it failed, 2 it was used wrongly.

Messages say what, where, found and expected; ``hint`` says what to do about it.
Foreign exceptions (kazoo's, OSError, kio's) are translated once, in the module that talks to the foreign thing.
"""

from __future__ import annotations

import errno
import re
from typing import Self


class KlogError(Exception):
    """Base of everything klog raises on purpose."""

    wire: int = -1
    code: str = "ERROR"
    retriable: bool = False
    exit_code: int = 1

    def __init_subclass__(
        cls,
        *,
        wire: int | None = None,
        code: str | None = None,
        retriable: bool | None = None,
        exit_code: int | None = None,
    ) -> None:
        given = {"wire": wire, "code": code, "retriable": retriable, "exit_code": exit_code}
        for name, value in given.items():
            if value is not None:
                setattr(cls, name, value)
        if wire is not None and code is None:
            cls.code = re.sub("(?<=[a-z])(?=[A-Z])", "_", cls.__name__).upper()

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint is not None:
            self.add_note(f"hint: {hint}")  # tracebacks show it: all that Spark hands on of an error in a task

    def bare(self) -> Self:
        """A copy that was never raised: what is kept, or handed on as a value, and what is raised of what is kept.

        An error that was raised has the frames it came through, with the request in them, and each that has the error
        among its variables makes a cycle with it, which nothing but the collector frees. Raised again, it gets more.
        """
        made = type(self).__new__(type(self), *self.args)
        made.__dict__.update(self.__dict__)
        return made


# --- The peer's bytes -------------------------------------------------------------------------------------------------


class PeerError(KlogError):
    """Bytes that a peer sent do not mean anything: the connection is closed, nothing is stored."""


class MalformedRequest(PeerError, wire=42, code="INVALID_REQUEST"):
    pass


class UnsupportedVersion(PeerError, wire=35):
    pass


class CorruptBatch(PeerError, wire=2, code="CORRUPT_MESSAGE"):
    """A record batch whose length, CRC or counts are wrong."""


class UnpackedTooLarge(CorruptBatch):
    """The records of a batch take more room when decompressed than its reader has for them."""


class InvalidRecord(PeerError, wire=87):
    pass


class UnsupportedFormat(PeerError, wire=43, code="UNSUPPORTED_FOR_MESSAGE_FORMAT"):
    """A batch of magic 0 or 1."""


class UnsupportedCodec(PeerError, wire=76, code="UNSUPPORTED_COMPRESSION_TYPE"):
    pass


# --- The caller's request ---------------------------------------------------------------------------------------------


class RequestError(KlogError):
    """A well-formed request that cannot be granted."""


class UsageError(RequestError, wire=42, code="USAGE", exit_code=2):
    """The command line (or a position, size, duration in it) is wrong."""


class OffsetOutOfRange(RequestError, wire=1):
    pass


class UnknownTopicOrPartition(RequestError, wire=3, retriable=True):
    def __init__(self, message: str, *, hint: str | None = None, topic: str | None = None) -> None:
        """``topic``: the one that does not exist."""
        super().__init__(message, hint=hint)
        self.topic = topic

    @classmethod
    def of_topics(cls, *names: str, hint: str | None = None) -> Self:
        """The error where there are no topics of these names, one or more."""
        shown = ", ".join(map(repr, names))
        told = f"topic {shown} does not exist" if len(names) == 1 else f"topics {shown} do not exist"
        return cls(told, hint=hint, topic=names[0])


class LeaderNotAvailable(RequestError, wire=5, retriable=True):
    pass


class NotLeader(RequestError, wire=6, code="NOT_LEADER_OR_FOLLOWER", retriable=True):
    pass


class RequestTimedOut(RequestError, wire=7, retriable=True):
    pass


class BrokerNotAvailable(RequestError, wire=8):
    pass


class ReplicaNotAvailable(RequestError, wire=9, retriable=True):
    pass


class MessageTooLarge(RequestError, wire=10):
    pass


class CoordinatorNotAvailable(RequestError, wire=15, retriable=True):
    pass


class InvalidTopic(RequestError, wire=17, code="INVALID_TOPIC_EXCEPTION"):
    pass


class RecordListTooLarge(RequestError, wire=18):
    pass


class NotCoordinator(RequestError, wire=16, retriable=True):
    """Another broker coordinates the group."""


class GroupIsHeld(RequestError, wire=23, code="INCONSISTENT_GROUP_PROTOCOL"):
    """A group is in use the other way: by consumers that coordinate through ZooKeeper, or by the brokers' protocol."""


class OwnershipConflict(RequestError, code="OWNERSHIP_CONFLICT", retriable=True):
    """A partition that a stream consumer is to read is owned by another still; it waits and tries again."""


class RebalanceFailed(RequestError, code="REBALANCE_FAILED", retriable=True):
    """Others held on to partitions through every try of a rebalance (``rebalance.max.retries``)."""


class NotOwned(RequestError, code="NOT_OWNED"):
    """A stream consumer is asked about a partition that it does not read, or no longer reads."""


class OffsetMetadataTooLarge(RequestError, wire=12):
    pass


class IllegalGeneration(RequestError, wire=22):
    """A member speaks of a generation that is not its group's."""


class InconsistentGroupProtocol(RequestError, wire=23):
    pass


class InvalidGroupId(RequestError, wire=24):
    pass


class UnknownMemberId(RequestError, wire=25):
    pass


class InvalidSessionTimeout(RequestError, wire=26):
    pass


class RebalanceInProgress(RequestError, wire=27, retriable=True):
    pass


class NonEmptyGroup(RequestError, wire=68):
    pass


class GroupIdNotFound(RequestError, wire=69):
    pass


class MemberIdRequired(RequestError, wire=79):
    """A new member is to join again under the id that it is given (KIP-394)."""


class GroupMaxSizeReached(RequestError, wire=81):
    pass


class FencedInstanceId(RequestError, wire=82):
    """Another process has the static member's place (KIP-345)."""


class GroupSubscribedToTopic(RequestError, wire=86):
    pass


class NotEnoughReplicas(RequestError, wire=19, retriable=True):
    pass


class ClusterAuthorizationFailed(RequestError, wire=31):
    pass


class StaleControllerEpoch(RequestError, wire=11):
    pass


class StaleBrokerEpoch(RequestError, wire=77):
    """A request for, or from, another incarnation of a broker."""


class NotEnoughReplicasAfterAppend(RequestError, wire=20, retriable=True):
    """Appended, and committed by fewer replicas than ``min.insync.replicas``."""


class InvalidRequiredAcks(RequestError, wire=21):
    pass


class InvalidTimestamp(RequestError, wire=32):
    def __init__(
        self, message: str, *, hint: str | None = None, record_errors: tuple[tuple[int, str], ...] = ()
    ) -> None:
        """``record_errors``: the records it is about, by their numbers in the batch, each with a sentence."""
        super().__init__(message, hint=hint)
        self.record_errors = record_errors


class TopicAlreadyExists(RequestError, wire=36):
    pass


class InvalidPartitions(RequestError, wire=37):
    pass


class InvalidReplicationFactor(RequestError, wire=38):
    pass


class InvalidReplicaAssignment(RequestError, wire=39):
    pass


class InvalidConfig(RequestError, wire=40):
    pass


class NotController(RequestError, wire=41, retriable=True):
    pass


class InvalidRequest(RequestError, wire=42):
    pass


class PolicyViolation(RequestError, wire=44):
    pass


class OutOfOrderSequence(RequestError, wire=45, code="OUT_OF_ORDER_SEQUENCE_NUMBER"):
    """``is_ahead``: there is a gap before it, which its producer may be about to fill."""

    def __init__(self, message: str, *, hint: str | None = None, is_ahead: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.is_ahead = is_ahead


class InvalidProducerEpoch(RequestError, wire=47):
    pass


class TransactionsNotServed(RequestError, wire=53, code="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
    """Transactions are not part of the system.

    Of all codes this one alone is final to every client: librdkafka asks on after any other answer to FindCoordinator,
    UNSUPPORTED_VERSION and INVALID_REQUEST too, until its own time-out says nothing of why.
    """

    def __init__(self, message: str = "klog has no transactions; produce without a transactional.id") -> None:
        super().__init__(message)


class ReassignmentInProgress(RequestError, wire=60, retriable=True):
    pass


class TopicDeletionDisabled(RequestError, wire=73):
    pass


class FencedLeaderEpoch(RequestError, wire=74, retriable=True):
    pass


class UnknownLeaderEpoch(RequestError, wire=75, retriable=True):
    pass


class OffsetNotAvailable(RequestError, wire=78, retriable=True):
    pass


class PreferredLeaderNotAvailable(RequestError, wire=80):
    """The first replica of the assignment is not in sync, or not alive."""


class EligibleLeadersNotAvailable(RequestError, wire=83):
    pass


class ElectionNotNeeded(RequestError, wire=84):
    """The leader that the election would choose leads already."""


class NoReassignmentInProgress(RequestError, wire=85):
    pass


class InconsistentTopicId(RequestError, wire=103):
    """The topic of that name is another one than the one that is meant: it was deleted and made again."""


class EndMoved(RequestError, wire=1):
    """A conditional append: the log ends elsewhere than its writer has seen. Own requests alone are answered so."""


class InconsistentClusterId(RequestError, wire=104):
    pass


class UnknownTopicId(RequestError, wire=100, retriable=True):
    pass


class MismatchedEndpointType(RequestError, wire=114):
    """A broker was asked for controllers (KIP-919)."""


class NoSuchThing(RequestError, wire=42, code="NOT_FOUND"):
    """A named thing (file, znode, broker, export) does not exist."""


class Refused(RequestError, wire=42):
    """The operation would destroy or confuse data; the message says what, and what to do instead."""


class TooManyUndecodable(KlogError, code="TOO_MANY_UNDECODABLE"):
    """More messages of an export's run could not be decoded than it may have; they are exported all the same."""


# --- The host ---------------------------------------------------------------------------------------------------------


class HostError(KlogError, code="ENVIRONMENT"):
    """Something outside klog is missing: Java, ZooKeeper, a port, a broker."""


class CannotConnect(HostError, code="CANNOT_CONNECT", retriable=True):
    """``is_refused``: the host answered that no process listens on the port, which says more than silence (rule R6)."""

    def __init__(self, message: str, *, hint: str | None = None, is_refused: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.is_refused = is_refused


class TimedOut(HostError, wire=7, retriable=True):
    pass


class BufferFull(HostError, code="BUFFER_FULL", retriable=True):
    """A producer's buffer has no room, and had none for as long as a send may wait (queue.enqueue.timeout.ms)."""


class SendFailed(HostError, code="SEND_FAILED"):
    """Some messages of a set were not acknowledged. ``errors`` says which, by their number in it, and why.

    The others are in the log; a set is not one transaction.
    """

    def __init__(self, message: str, errors: dict[int, KlogError], *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.errors = errors
        self.retriable = all(error.retriable for error in errors.values())


class ConsumerTimeout(TimedOut, code="CONSUMER_TIMEOUT"):
    """No message came within ``consumer.timeout.ms``; the stream may be asked again."""


class JavaMissing(HostError, code="JAVA_MISSING"):
    pass


class PortInUse(HostError, code="PORT_IN_USE"):
    pass


def listen_error(doing: str, port: int, error: OSError, flag: str) -> HostError:
    """Why a port cannot be listened to. ``doing``: ``listen on HOST:PORT``; ``flag`` chooses another one."""
    if error.errno == errno.EADDRINUSE:
        return PortInUse(
            f"cannot {doing}: the port is in use",
            hint=f"`ss -ltnp 'sport = :{port}'` shows the process; choose another with {flag}",
        )
    return HostError(f"cannot {doing}: {error.strerror}")


class ZooKeeperError(HostError, code="ZOOKEEPER"):
    pass


class NoNode(ZooKeeperError, code="ZOOKEEPER_NO_NODE"):
    pass


class NodeExists(ZooKeeperError, code="ZOOKEEPER_NODE_EXISTS"):
    pass


class BadVersion(ZooKeeperError, code="ZOOKEEPER_BAD_VERSION"):
    pass


class SessionLost(ZooKeeperError, wire=7, code="ZOOKEEPER_SESSION_LOST", retriable=True):
    """The session is suspended or expired: the write may or may not have happened (rule Z2).

    A client gets REQUEST_TIMED_OUT, which says the same, and tries again.
    """


class BrokerIdInUse(HostError, code="BROKER_ID_IN_USE"):
    pass


class WrongCluster(HostError, code="WRONG_CLUSTER"):
    """A log dir, a broker and a ZooKeeper that do not belong together."""


# --- The disk ---------------------------------------------------------------------------------------------------------


class StorageError(KlogError, wire=56, code="KAFKA_STORAGE_ERROR", retriable=True):
    """An I/O error, or a log dir that is offline."""


class DiskFull(StorageError, code="DISK_FULL"):
    """ENOSPC: the partial batch was cut; appends resume by themselves (rule L5)."""


class NoDescriptors(StorageError, code="NO_DESCRIPTORS"):
    """EMFILE, ENFILE: no file descriptor is left. No disk has failed; the same call may succeed later."""


class LogDirLocked(StorageError, code="LOG_DIR_LOCKED"):
    pass


class CorruptLog(StorageError, code="CORRUPT_LOG"):
    """Bytes on disk that are not a log: path, address, found, expected."""
