"""Settings of the connection to ZooKeeper; those of its security are for clients, too."""

from __future__ import annotations

from klog.config.setting import INT_MAX, Check, Setting, Table, at_least, between, not_empty, one_of

ZOOKEEPER_SETTINGS: Table = {
    Setting("zookeeper.connect", "string", None, not_empty("at least one host:port"), aliases=("zk.connect",)): (
        "ZooKeeper's servers and chroot, as host:port,host:port/chroot; the same for all brokers and clients.",
        "the broker registers there",
    ),
    Setting("zookeeper.session.timeout.ms", "ms", 6000, between(100, INT_MAX), aliases=("zk.sessiontimeout.ms",)): (
        "Session timeout, after which ZooKeeper considers the broker dead.",
        "ZooKeeper session",
    ),
    Setting(
        "zookeeper.connection.timeout.ms",
        "ms",
        None,
        at_least(1),
        aliases=("zk.connectiontimeout.ms",),
        follows=(("zookeeper.session.timeout.ms", 1),),
    ): ("Time limit of the first connection to ZooKeeper; the session timeout unless given.", "start-up"),
    Setting(
        "enable.zookeeper",
        "enum",
        "true",
        Check("out of true: brokers cannot do without ZooKeeper", lambda value: value == "true"),
    ): ("Registration in ZooKeeper, always done. From Kafka 0.7.", "none"),
    Setting("zookeeper.set.acl", "bool", False): (
        "Whether nodes that are created are closed: all may read them, but for credentials, and their owner alone may "
        "write. Needs zookeeper.username. `klog security zookeeper` closes those that exist.",
        "ACLs of nodes",
    ),
    Setting("zookeeper.username", "string", None): (
        "Who the session with ZooKeeper is, in its scheme digest: up to 16 letters, digits, '.', '_', '-'. klog's own.",
        "the session's identity",
    ),
    Setting("zookeeper.password", "string", None): (
        "Password of zookeeper.username; klog's own.",
        "the session's identity",
    ),
    Setting("zookeeper.acl.owner", "string", None): (
        "Identity of the cluster's owner, as NAME:DIGEST; this session's own unless given. klog's own.",
        "ACLs of nodes",
    ),
    Setting("zookeeper.acl.streams", "string", None): (
        "Identity of the paper's consumers, as NAME:DIGEST: it may write the nodes of groups. klog's own.",
        "ACLs of nodes",
    ),
    Setting("zookeeper.ssl.client.enable", "bool", False): (
        "Whether the session is over TLS.",
        "connections to ZooKeeper",
    ),
    Setting("zookeeper.ssl.truststore.location", "string", None): (
        "File with the certificates of the authorities that sign ZooKeeper's; those of the system unless given.",
        "TLS to ZooKeeper",
    ),
    Setting("zookeeper.ssl.truststore.password", "string", None): ("Password of the trust store.", "PKCS12"),
    Setting("zookeeper.ssl.truststore.type", "enum", None, one_of("PEM", "PKCS12")): (
        "Form of the trust store: PEM, or PKCS12, which needs the package cryptography; by its content unless given.",
        "how trusted certificates are read",
    ),
    Setting("zookeeper.ssl.keystore.location", "string", None): (
        "File with the key and the certificates that the broker shows to ZooKeeper.",
        "TLS to a ZooKeeper that asks for certificates",
    ),
    Setting("zookeeper.ssl.keystore.password", "string", None): (
        "Password of the key store, and of an encrypted key in it.",
        "PKCS12, and PEM with an encrypted key",
    ),
    Setting("zookeeper.ssl.keystore.type", "enum", None, one_of("PEM", "PKCS12")): (
        "Form of the key store: PEM, or PKCS12, which needs the package cryptography; by its content unless given.",
        "how the broker's certificate is read",
    ),
    Setting("zookeeper.ssl.endpoint.identification.algorithm", "string", "https"): (
        "Whether ZooKeeper's host is compared with its certificate: https, or empty for no.",
        "TLS to ZooKeeper",
    ),
}

SECRETS = frozenset({"zookeeper.password", "zookeeper.ssl.keystore.password", "zookeeper.ssl.truststore.password"})
"""Settings whose values are never shown."""
