"""What the model takes for granted: figures measured by `bench.simulation.calibrate`, and a few that are assumed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """On a real ZooKeeper server and a real connection, on this machine. Seconds, unless the name says otherwise."""

    write_s: float = 0.0006
    """From a write to its answer, when nothing else is under way: the flush of its transaction log in it."""
    write_busy_s: float = 0.00004
    """How long the server is occupied by one write, when many are under way."""
    multi_operation_s: float = 0.000012
    """What one more operation in a multi adds."""
    read_s: float = 0.0003
    read_busy_s: float = 0.00002
    read_node_s: float = 0.000004
    """What one more node in a multi-read adds."""
    client_request_s: float = 0.0001
    """The client's CPU time for a request, by kazoo."""
    client_operation_s: float = 0.00002
    """The client's CPU time for one more operation in a multi."""
    client_node_s: float = 0.00001
    """The client's CPU time for one more node in a multi-read."""
    channel_request_s: float = 0.0001
    """A broker's CPU time for one request to another and its answer, without encoding and decoding."""
    apply_partition_s: float = 0.00003
    """A broker's CPU time to decode one partition of UpdateMetadata and take it in."""
    apply_broker_s: float = 0.00001
    """A broker's CPU time to decode one broker of UpdateMetadata and take it in."""
    lead_partition_s: float = 0.00003
    """A broker's CPU time to decode one partition of LeaderAndIsr."""
    node_heap_bytes: float = 400.0
    """The server's heap for one state of a partition with the folder above it, per znode."""
    node_snapshot_bytes: float = 250.0
    snapshot_node_s: float = 0.000004
    """A server's start: what one more znode in its snapshot adds."""
    is_measured: bool = False
    """False: the defaults above, for tests."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """What one machine cannot measure."""

    network_s: float = 0.00025
    """One way, between two brokers or a broker and ZooKeeper, in one data centre."""
    link_bytes_s: float = 1.25e9
    """The controller's network: 10 Gbit/s."""
    catch_up_s: float = 1.0
    """From a follower's start until it has everything."""
    restart_s: float = 3.0
    """A broker's stop and start."""
    session_s: float = 6.0
    """ZooKeeper's session time-out of a broker."""
