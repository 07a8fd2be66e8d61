"""Apache Kafka's Java clients and tools over each protocol and mechanism, against a broker with PKCS12 stores.

One JVM a line does what a user's program does; `kafka-acls` and `kafka-configs` are the tools themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from klog.coordination import acls, scram_credentials
from klog.coordination.embedded import ZooKeeperServer
from klog.record.codec import Codec
from tests.broker_fixture import RunningBroker
from tests.interop.java import JavaClient, tools_of
from tests.interop.kit import Missing
from tests.interop.test_java_tools import run
from tests.security.broker_doors import Doors, add_user, listen_to, ports_of, unique
from tests.security.certificates import Authority
from tests.zookeeper_fixture import session_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("java-security")]

STORE = "store secret"
LISTENERS = {"SSL": "SSL", "MUTUAL": "SSL", "SASL_PLAINTEXT": "SASL_PLAINTEXT", "SASL_SSL": "SASL_SSL"}
VALUES = [b"value %d" % number for number in range(20)]
LOGIN = {
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
}


@pytest.fixture(scope="module")
def doors(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """A broker with all of it; admin may do everything, and so may ANONYMOUS where TLS alone is spoken."""
    folder = tmp_path_factory.mktemp("java")
    authority = Authority(folder)
    broker = RunningBroker(folder, f"{zookeeper.address}/{unique('java')}")
    broker.listen = listen_to(*LISTENERS)
    broker.settings = {
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
        "inter.broker.listener.name": "SSL",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(authority.issue(folder / "broker.p12", password=STORE.encode())),
        "ssl.keystore.password": STORE,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(authority.trust_store(folder / "trust.p12", STORE.encode())),
        "ssl.truststore.password": STORE,
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "authorizer.class.name": "klog",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    add_user(broker, "admin", "of admin")
    with broker.running():
        yield Doors(broker, ports_of(broker), authority)


@pytest.fixture(scope="module")
def java() -> Iterator[JavaClient]:
    try:
        client = JavaClient("kafka-4.1")
    except Missing as reason:
        pytest.skip(str(reason))
    yield client
    client.close()


def properties(doors: Doors, folder: Path, listener: str, mechanism: str | None = None) -> Path:
    """A file of Kafka's client properties."""
    settings = {"security.protocol": LISTENERS[listener]}
    if listener == "MUTUAL":
        settings |= {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(doors.authority.issue(folder / "own.p12", "admin", password=STORE.encode())),
            "ssl.keystore.password": STORE,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": doors.broker.settings["ssl.truststore.location"],
            "ssl.truststore.password": STORE,
        }
    elif listener != "SASL_PLAINTEXT":
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(doors.authority.path)}
    if mechanism is not None:
        settings["sasl.mechanism"] = mechanism
        settings["sasl.jaas.config"] = f'{LOGIN[mechanism]} required username="admin" password="of admin";'
    path = folder / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


@pytest.mark.long("Java at each door; other clients are in test_clients.py")
@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [
        *(("SSL", None), ("MUTUAL", None), *(("SASL_SSL", each) for each in LOGIN)),
        *(("SASL_PLAINTEXT", each) for each in LOGIN),
    ],
)
def test_a_topic_is_made_filled_and_read(
    doors: Doors, java: JavaClient, tmp_path: Path, listener: str, mechanism: str | None
) -> None:
    where = f"{properties(doors, tmp_path, listener, mechanism)}@{doors.address(listener)}"
    topic = unique("t")
    java.create_topic(where, topic, 1, {})
    java.produce(where, topic, VALUES, Codec.NONE, idempotent=True)
    assert [value for _, value in java.consume_in_group(where, topic, topic, len(VALUES))] == VALUES
    java.delete_topic(where, topic)


@pytest.mark.long("Java's tools in a JVM each; tests/interop/test_java_tools.py has one")
@pytest.mark.parametrize("line", ["kafka-4.1", "kafka-3.9"])
def test_kafka_configs_and_kafka_acls(doors: Doors, tmp_path: Path, line: str) -> None:
    """Make a user and permit it something: by requests, and as before 4.0 in ZooKeeper itself. It can do that then."""
    try:
        tools = tools_of(line)
    except Missing as reason:
        pytest.skip(str(reason))
    user, topic = unique("user"), unique("t")
    password = "SCRAM-SHA-256=[iterations=8192,password=a secret],SCRAM-SHA-512=[password=b]"
    of_user = ("--entity-type", "users", "--entity-name", user, "--alter", "--add-config", password)
    permit = ("--add", "--allow-principal", f"User:{user}", "--producer", "--topic", topic)
    if line == "kafka-4.1":
        config = str(properties(doors, tmp_path, "SASL_SSL", "SCRAM-SHA-512"))
        at: tuple[str, ...] = ("--bootstrap-server", doors.address("SASL_SSL"), "--command-config", config)
        acl, at_acls = "org.apache.kafka.tools.AclCommand", at
    else:
        at = ("--zookeeper", doors.broker.zookeeper)
        acl = "kafka.admin.AclCommand"
        at_acls = ("--authorizer-properties", f"zookeeper.connect={doors.broker.zookeeper}")
    run(tools, "kafka.admin.ConfigCommand", *at, *of_user)
    run(tools, acl, *at_acls, *permit)
    with session_of(doors.broker.zookeeper, create_chroot=True) as session:
        assert [one.iterations for one in scram_credentials.read(session, user).values()] == [8192, 4096]
        found = acls.read_all(session).acls
    (own,) = [each for pattern, each in found.items() if pattern.name == topic]
    assert {(str(one.principal), one.operation.name) for one in own} == {
        (f"User:{user}", operation) for operation in ("WRITE", "DESCRIBE", "CREATE")
    }
    shown = run(tools, acl, *at_acls, "--list", "--topic", topic)
    assert f"principal=User:{user}, host=*, operation=WRITE, permissionType=ALLOW" in shown

    login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": user, "sasl.password": "b"}
    failed: list[object] = []
    producer = Producer(doors.librdkafka("SASL_SSL", **login))
    producer.produce(topic, b"v", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(20) == 0
    assert failed == [None]
