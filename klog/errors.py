"""One tree of errors, ordered by origin: the peer's bytes, the caller's request, the host, the disk.

Every error carries four things as class attributes, so that each border can translate it without a table of its own:

* ``wire``       the protocol's error code (Kafka's numbers), what a client is answered;
* ``code``       the machine name in ``--output json`` errors: of a class with a ``wire`` of its own, or a code of the
                 schema registry's, the class's name, unless it gives another;
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

    def __init_subclass__(cls) -> None:
        if ("wire" in vars(cls) or "registry_code" in vars(cls)) and "code" not in vars(cls):
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


class MalformedRequest(PeerError):
    wire = 42
    code = "INVALID_REQUEST"


class UnsupportedVersion(PeerError):
    wire = 35


class CorruptBatch(PeerError):
    """A record batch whose length, CRC or counts are wrong."""

    wire = 2
    code = "CORRUPT_MESSAGE"


class UnpackedTooLarge(CorruptBatch):
    """The records of a batch take more room when decompressed than its reader has for them."""


class InvalidRecord(PeerError):
    wire = 87


class UnsupportedFormat(PeerError):
    """A batch of magic 0 or 1."""

    wire = 43
    code = "UNSUPPORTED_FOR_MESSAGE_FORMAT"


class UnsupportedCodec(PeerError):
    wire = 76
    code = "UNSUPPORTED_COMPRESSION_TYPE"


# --- The caller's request ---------------------------------------------------------------------------------------------


class RequestError(KlogError):
    """A well-formed request that cannot be granted."""


class UsageError(RequestError):
    """The command line (or a position, size, duration in it) is wrong."""

    wire = 42
    code = "USAGE"
    exit_code = 2


class OffsetOutOfRange(RequestError):
    wire = 1


class UnknownTopicOrPartition(RequestError):
    wire = 3
    retriable = True

    def __init__(self, message: str, *, hint: str | None = None, topic: str | None = None) -> None:
        """``topic``: the one that does not exist."""
        super().__init__(message, hint=hint)
        self.topic = topic


class LeaderNotAvailable(RequestError):
    wire = 5
    retriable = True


class NotLeader(RequestError):
    wire = 6
    code = "NOT_LEADER_OR_FOLLOWER"
    retriable = True


class RequestTimedOut(RequestError):
    wire = 7
    retriable = True


class BrokerNotAvailable(RequestError):
    wire = 8


class ReplicaNotAvailable(RequestError):
    wire = 9
    retriable = True


class MessageTooLarge(RequestError):
    wire = 10


class CoordinatorNotAvailable(RequestError):
    wire = 15
    retriable = True


class InvalidTopic(RequestError):
    wire = 17
    code = "INVALID_TOPIC_EXCEPTION"


class RecordListTooLarge(RequestError):
    wire = 18


class NotCoordinator(RequestError):
    """Another broker coordinates the group."""

    wire = 16
    retriable = True


class GroupIsHeld(RequestError):
    """A group is in use the other way: by consumers that coordinate through ZooKeeper, or by the brokers' protocol."""

    wire = 23
    code = "INCONSISTENT_GROUP_PROTOCOL"


class OwnershipConflict(RequestError):
    """A partition that a stream consumer is to read is owned by another still; it waits and tries again."""

    code = "OWNERSHIP_CONFLICT"
    retriable = True


class RebalanceFailed(RequestError):
    """Others held on to partitions through every try of a rebalance (``rebalance.max.retries``)."""

    code = "REBALANCE_FAILED"
    retriable = True


class NotOwned(RequestError):
    """A stream consumer is asked about a partition that it does not read, or no longer reads."""

    code = "NOT_OWNED"


class OffsetMetadataTooLarge(RequestError):
    wire = 12


class IllegalGeneration(RequestError):
    """A member speaks of a generation that is not its group's."""

    wire = 22


class InconsistentGroupProtocol(RequestError):
    wire = 23


class InvalidGroupId(RequestError):
    wire = 24


class UnknownMemberId(RequestError):
    wire = 25


class InvalidSessionTimeout(RequestError):
    wire = 26


class RebalanceInProgress(RequestError):
    wire = 27
    retriable = True


class NonEmptyGroup(RequestError):
    wire = 68


class GroupIdNotFound(RequestError):
    wire = 69


class MemberIdRequired(RequestError):
    """A new member is to join again under the id that it is given (KIP-394)."""

    wire = 79


class GroupMaxSizeReached(RequestError):
    wire = 81


class FencedInstanceId(RequestError):
    """Another process has the static member's place (KIP-345)."""

    wire = 82


class GroupSubscribedToTopic(RequestError):
    wire = 86


class NotEnoughReplicas(RequestError):
    wire = 19
    retriable = True


class ClusterAuthorizationFailed(RequestError):
    wire = 31


class StaleControllerEpoch(RequestError):
    wire = 11


class StaleBrokerEpoch(RequestError):
    """A request for, or from, another incarnation of a broker."""

    wire = 77


class NotEnoughReplicasAfterAppend(RequestError):
    """Appended, and committed by fewer replicas than ``min.insync.replicas``."""

    wire = 20
    retriable = True


class InvalidRequiredAcks(RequestError):
    wire = 21


class InvalidTimestamp(RequestError):
    wire = 32

    def __init__(
        self, message: str, *, hint: str | None = None, record_errors: tuple[tuple[int, str], ...] = ()
    ) -> None:
        """``record_errors``: the records it is about, by their numbers in the batch, each with a sentence."""
        super().__init__(message, hint=hint)
        self.record_errors = record_errors


class TopicAlreadyExists(RequestError):
    wire = 36


class InvalidPartitions(RequestError):
    wire = 37


class InvalidReplicationFactor(RequestError):
    wire = 38


class InvalidReplicaAssignment(RequestError):
    wire = 39


class InvalidConfig(RequestError):
    wire = 40


class NotController(RequestError):
    wire = 41
    retriable = True


class InvalidRequest(RequestError):
    wire = 42


class PolicyViolation(RequestError):
    wire = 44


class OutOfOrderSequence(RequestError):
    """``is_ahead``: there is a gap before it, which its producer may be about to fill."""

    wire = 45
    code = "OUT_OF_ORDER_SEQUENCE_NUMBER"

    def __init__(self, message: str, *, hint: str | None = None, is_ahead: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.is_ahead = is_ahead


class InvalidProducerEpoch(RequestError):
    wire = 47


class TransactionsNotServed(RequestError):
    """Transactions are not part of the system.

    Of all codes this one alone is final to every client: librdkafka asks on after any other answer to FindCoordinator,
    UNSUPPORTED_VERSION and INVALID_REQUEST too, until its own time-out says nothing of why.
    """

    wire = 53
    code = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"

    def __init__(self, message: str = "klog has no transactions; produce without a transactional.id") -> None:
        super().__init__(message)


class ReassignmentInProgress(RequestError):
    wire = 60
    retriable = True


class TopicDeletionDisabled(RequestError):
    wire = 73


class FencedLeaderEpoch(RequestError):
    wire = 74
    retriable = True


class UnknownLeaderEpoch(RequestError):
    wire = 75
    retriable = True


class OffsetNotAvailable(RequestError):
    wire = 78
    retriable = True


class PreferredLeaderNotAvailable(RequestError):
    """The first replica of the assignment is not in sync, or not alive."""

    wire = 80


class EligibleLeadersNotAvailable(RequestError):
    wire = 83


class ElectionNotNeeded(RequestError):
    """The leader that the election would choose leads already."""

    wire = 84


class NoReassignmentInProgress(RequestError):
    wire = 85


class InconsistentTopicId(RequestError):
    """The topic of that name is another one than the one that is meant: it was deleted and made again."""

    wire = 103


class EndMoved(RequestError):
    """A conditional append: the log ends elsewhere than its writer has seen. Own requests alone are answered so."""

    wire = 1


class InconsistentClusterId(RequestError):
    wire = 104


class UnknownTopicId(RequestError):
    wire = 100
    retriable = True


class MismatchedEndpointType(RequestError):
    """A broker was asked for controllers (KIP-919)."""

    wire = 114


class NoSuchThing(RequestError):
    """A named thing (file, znode, broker, export) does not exist."""

    wire = 42
    code = "NOT_FOUND"


class Refused(RequestError):
    """The operation would destroy or confuse data; the message says what, and what to do instead."""

    wire = 42


class TooManyUndecodable(KlogError):
    """More messages of an export's run could not be decoded than it may have; they are exported all the same."""

    code = "TOO_MANY_UNDECODABLE"


# --- The host ---------------------------------------------------------------------------------------------------------


class HostError(KlogError):
    """Something outside klog is missing: Java, ZooKeeper, a port, a broker."""

    code = "ENVIRONMENT"


class CannotConnect(HostError):
    """``is_refused``: the host answered that no process listens on the port, which says more than silence (rule R6)."""

    code = "CANNOT_CONNECT"
    retriable = True

    def __init__(self, message: str, *, hint: str | None = None, is_refused: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.is_refused = is_refused


class TimedOut(HostError):
    wire = 7
    retriable = True


class BufferFull(HostError):
    """A producer's buffer has no room, and had none for as long as a send may wait (queue.enqueue.timeout.ms)."""

    code = "BUFFER_FULL"
    retriable = True


class SendFailed(HostError):
    """Some messages of a set were not acknowledged. ``errors`` says which, by their number in it, and why.

    The others are in the log; a set is not one transaction.
    """

    code = "SEND_FAILED"

    def __init__(self, message: str, errors: dict[int, KlogError], *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.errors = errors
        self.retriable = all(error.retriable for error in errors.values())


class ConsumerTimeout(TimedOut):
    """No message came within ``consumer.timeout.ms``; the stream may be asked again."""

    code = "CONSUMER_TIMEOUT"


class JavaMissing(HostError):
    code = "JAVA_MISSING"


class PortInUse(HostError):
    code = "PORT_IN_USE"


def listen_error(doing: str, port: int, error: OSError, flag: str) -> HostError:
    """Why a port cannot be listened to. ``doing``: ``listen on HOST:PORT``; ``flag`` chooses another one."""
    if error.errno == errno.EADDRINUSE:
        return PortInUse(
            f"cannot {doing}: the port is in use",
            hint=f"`ss -ltnp 'sport = :{port}'` shows the process; choose another with {flag}",
        )
    return HostError(f"cannot {doing}: {error.strerror}")


class ZooKeeperError(HostError):
    code = "ZOOKEEPER"


class NoNode(ZooKeeperError):
    code = "ZOOKEEPER_NO_NODE"


class NodeExists(ZooKeeperError):
    code = "ZOOKEEPER_NODE_EXISTS"


class BadVersion(ZooKeeperError):
    code = "ZOOKEEPER_BAD_VERSION"


class SessionLost(ZooKeeperError):
    """The session is suspended or expired: the write may or may not have happened (rule Z2).

    A client gets REQUEST_TIMED_OUT, which says the same, and tries again.
    """

    wire = 7
    code = "ZOOKEEPER_SESSION_LOST"
    retriable = True


class BrokerIdInUse(HostError):
    code = "BROKER_ID_IN_USE"


class WrongCluster(HostError):
    """A log dir, a broker and a ZooKeeper that do not belong together."""

    code = "WRONG_CLUSTER"


# --- The disk ---------------------------------------------------------------------------------------------------------


class StorageError(KlogError):
    """An I/O error, or a log dir that is offline."""

    wire = 56
    code = "KAFKA_STORAGE_ERROR"
    retriable = True


class DiskFull(StorageError):
    """ENOSPC: the partial batch was cut; appends resume by themselves (rule L5)."""

    code = "DISK_FULL"


class NoDescriptors(StorageError):
    """EMFILE, ENFILE: no file descriptor is left. No disk has failed; the same call may succeed later."""

    code = "NO_DESCRIPTORS"


class LogDirLocked(StorageError):
    code = "LOG_DIR_LOCKED"


class CorruptLog(StorageError):
    """Bytes on disk that are not a log: path, address, found, expected."""

    code = "CORRUPT_LOG"
