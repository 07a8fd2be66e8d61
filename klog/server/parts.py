"""The parts of a broker that handlers may ask for by name; see `klog.server.dispatch`."""

from __future__ import annotations

from klog.config import BrokerConfig
from klog.secret import Secret
from klog.server.access import Access
from klog.server.authority import Authority
from klog.server.auto_create import AutoCreation
from klog.server.broker_probes import BrokerProbes
from klog.server.credentials import UserCredentials
from klog.server.former_brokers import FormerBrokers
from klog.server.history import HistoryKeeper
from klog.server.metrics_table import Measured
from klog.server.producer_ids import ProducerIds
from klog.server.quota_keeper import QuotaKeeper
from klog.server.registry_copies import RegistryCopies
from klog.server.replicas.deletions import Deletions
from klog.server.replicas.led_partitions import LedPartitions
from klog.server.replicas.local_replicas import LocalReplicas
from klog.server.runtime import Identity
from klog.server.schema_registry import BrokerRegistry
from klog.server.zookeeper_admission import ZooKeeperAdmission


class Parts(Measured):
    """One of each. The broker is one."""

    config: BrokerConfig
    identity: Identity
    secret: Secret
    credentials: UserCredentials
    partitions: LedPartitions
    local_replicas: LocalReplicas
    deletions: Deletions
    authority: Authority
    access: Access | None
    """None if everybody may do everything (authorizer.class.name)."""
    quota_keeper: QuotaKeeper
    zookeeper_admission: ZooKeeperAdmission
    registry: BrokerRegistry
    registry_copies: RegistryCopies
    producer_ids: ProducerIds
    auto_creation: AutoCreation
    probes: BrokerProbes
    former_brokers: FormerBrokers
    history: HistoryKeeper
