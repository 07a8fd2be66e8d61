"""The parts of a broker that handlers may ask for by name; see `klog.server.dispatch`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from klog.config import BrokerConfig
from klog.secret import Secret
from klog.server.access import Access
from klog.server.authority import Authority
from klog.server.auto_create import AutoCreation
from klog.server.broker_probes import BrokerProbes
from klog.server.controller.controller import Controller
from klog.server.credentials import UserCredentials
from klog.server.former_brokers import FormerBrokers
from klog.server.groups.coordinator import Coordinator
from klog.server.history import HistoryKeeper
from klog.server.image import ClusterImage
from klog.server.lifecycle import Lifecycle
from klog.server.look_ups import LookUps
from klog.server.metrics_table import Measured
from klog.server.producer_ids import ProducerIds
from klog.server.purgatory import Purgatory
from klog.server.quota_keeper import QuotaKeeper
from klog.server.replicas.deletions import Deletions
from klog.server.replicas.led_partitions import LedPartitions
from klog.server.replicas.local_replicas import LocalReplicas
from klog.server.replicas.replica_session import ReplicaSession
from klog.server.replicas.replicas import Replicas
from klog.server.runtime import Identity, Runtime
from klog.server.schema_registry import BrokerRegistry
from klog.server.zookeeper_admission import ZooKeeperAdmission
from klog.storage.log_dir import LogDirs


@dataclass(frozen=True)
class Parts:
    """One of each."""

    config: BrokerConfig
    runtime: Runtime
    identity: Identity
    lifecycle: Lifecycle
    secret: Secret
    credentials: UserCredentials
    image: ClusterImage
    log_dirs: LogDirs
    partitions: LedPartitions
    replicas: Replicas
    local_replicas: LocalReplicas
    deletions: Deletions
    look_ups: LookUps
    authority: Authority
    access: Access | None
    """None if everybody may do everything (authorizer.class.name)."""
    quota_keeper: QuotaKeeper
    controller: Controller
    zookeeper_admission: ZooKeeperAdmission
    groups: Coordinator
    registry: BrokerRegistry
    producer_ids: ProducerIds
    auto_creation: AutoCreation
    probes: BrokerProbes
    former_brokers: FormerBrokers
    purgatory: Purgatory
    open_session: Callable[[int, int], ReplicaSession]
    """Opens the leader's side of a follower's connection: (broker id, incarnation)."""
    history: HistoryKeeper
    measured: Callable[[], Measured]
    """The source of the metrics."""
    take_metadata: Callable[[Any], None]
    """Applies the controller's UpdateMetadata request."""
