"""The names of the settings that say how a client or a broker comes into ZooKeeper: Kafka's, and klog's own.

    zookeeper.username, zookeeper.password   who the session is, in ZooKeeper's scheme digest
    zookeeper.set.acl                        true: nodes that are created are closed
    zookeeper.acl.owner                      identity of the cluster's owner, NAME:DIGEST; the session's own by default
    zookeeper.acl.streams                    identity of the paper's consumers, who write the nodes of groups
    zookeeper.ssl.client.enable              true: TLS, with zookeeper.ssl.truststore.*, zookeeper.ssl.keystore.*,
                                             zookeeper.ssl.endpoint.identification.algorithm, as Kafka has them

`klog.client.zookeeper_access` reads them.
"""

from __future__ import annotations

from typing import Final

USERNAME: Final = "zookeeper.username"
PASSWORD: Final = "zookeeper.password"
SET_ACL: Final = "zookeeper.set.acl"
OWNER: Final = "zookeeper.acl.owner"
STREAMS: Final = "zookeeper.acl.streams"
TLS: Final = "zookeeper.ssl.client.enable"
KEY_STORE_PASSWORD: Final = "zookeeper.ssl.keystore.password"
TLS_DETAILS: Final = (
    "zookeeper.ssl.truststore.location",
    "zookeeper.ssl.truststore.password",
    "zookeeper.ssl.truststore.type",
    "zookeeper.ssl.keystore.location",
    KEY_STORE_PASSWORD,
    "zookeeper.ssl.keystore.type",
    "zookeeper.ssl.endpoint.identification.algorithm",
)
SETTINGS: Final = frozenset((USERNAME, PASSWORD, SET_ACL, OWNER, STREAMS, TLS, *TLS_DETAILS))
