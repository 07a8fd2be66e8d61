"""TLS to a real ZooKeeper: sessions, brokers and the paper's consumer, what is refused and how it is named."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import klog
from bench.processes import ports_in_a_row
from klog.admin import security_files, znode_acls
from klog.admin.zookeeper import start as start_zookeeper
from klog.admin.zookeeper import status
from klog.client.client_config import read_client_config
from klog.client.zookeeper_access import read_access
from klog.config.properties import read_properties
from klog.coordination import embedded
from klog.coordination.embedded import ZooKeeperServer
from klog.coordination.server_settings import ServerSettings, TlsListener, parse_ensemble, settings_of
from klog.coordination.zookeeper import Create, ZooKeeper
from klog.coordination.zookeeper_access import ZooKeeperAccess, ZooKeeperServers
from klog.errors import CannotConnect, KlogError, NoSuchThing, UsageError
from tests.broker_fixture import RunningBroker
from tests.rows import each
from tests.zookeeper_fixture import klog_home, session_of

pytestmark = pytest.mark.xdist_group("zookeeper-tls")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `klog security init --zookeeper-tls` writes."""
    made = tmp_path_factory.mktemp("tls") / "security"
    security_files.init(made, zookeeper_tls=True)
    return made


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One that clients reach at all addresses of this machine, by TLS."""
    directory = tmp_path_factory.mktemp("zk")
    try:
        start_zookeeper(directory, klog_home(), host="0.0.0.0", tls=folder)
        found = embedded.find(directory)
        assert found is not None and found.settings.tls is not None
        yield found
    finally:
        left = embedded.find(directory)
        if left is not None:
            left.stop()


@pytest.fixture(scope="module")
def access(folder: Path) -> ZooKeeperAccess:
    """The administrator's."""
    found = read_client_config(folder / "client.properties").access
    assert found is not None and found.context is not None
    return found


def at(server: ZooKeeperServer, chroot: str = "", host: str = "localhost") -> str:
    assert server.settings.tls is not None
    return f"{host}:{server.settings.tls.port}{chroot}"


def refused(address: str, access: ZooKeeperAccess | None) -> KlogError:
    """Why a session is not begun."""
    session = ZooKeeper(address if access is None else ZooKeeperServers(address, access))
    with session, pytest.raises(CannotConnect) as error:
        session.start(2, patient=False)
    return error.value


@pytest.mark.long("a flood through TLS")
def test_many_answers_and_large_ones_come_through(server: ZooKeeperServer, access: ZooKeeperAccess) -> None:
    """Several answers are in one record of TLS, and one answer in several."""
    with ZooKeeper(ZooKeeperServers(at(server, "/many"), access), 30_000) as session:  # a busy machine takes long
        session.start(create_chroot=True)
        session.multi([Create(f"/{number}", b"%d" % number) for number in range(1500)])
        fired: list[str] = []
        all_fired = threading.Event()

        def watch(event: object) -> None:
            fired.append(str(event))
            if len(fired) == 1500:
                all_fired.set()

        every = [f"/{number}" for number in range(1500)]
        assert all(stat is not None for stat in session.exists_many(every, watch))
        for path in every[:100]:
            session.set(path, b"x" * 10)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(session.delete, every[100:]))
        assert all_fired.wait(20)
        session.create("/large", b"y" * 400_000)
        assert [node is not None and len(node.data) for node in session.get_many(["/large", "/0"])] == [400_000, 10]
        assert sorted(len(found or ()) for found in session.acls_many(every[:100])) == [2] * 100


def test_who_does_not_fit_is_refused_by_name(
    server: ZooKeeperServer, access: ZooKeeperAccess, folder: Path, tmp_path: Path
) -> None:
    plain = refused(at(server), None)
    assert "zookeeper.ssl.client.enable" in (plain.hint or "")
    assert "TLS" in refused(f"127.0.0.1:{server.port}", access).message
    security_files.init(tmp_path / "others", zookeeper_tls=True)
    others = read_client_config(tmp_path / "others" / "client.properties").access
    assert "certificate" in refused(at(server), others).message
    assert "certificate" in refused(at(server, host="127.0.0.2"), access).message
    given = read_properties(folder / "client.properties")
    lenient = read_access({**given, "zookeeper.ssl.endpoint.identification.algorithm": ""}, "test")
    with ZooKeeper(ZooKeeperServers(at(server, host="127.0.0.2"), lenient)) as session:
        session.start()


def test_what_is_not_encrypted_listens_on_the_loopback_alone(server: ZooKeeperServer) -> None:
    assert server.settings.host == "127.0.0.1" and server.is_serving()
    with pytest.raises(OSError), socket.create_connection(("127.0.0.2", server.port), 1):
        pass


def test_a_broker_and_the_papers_consumer_come_in_by_tls(server: ZooKeeperServer, folder: Path, tmp_path: Path) -> None:
    def of_zookeeper(name: str) -> dict[str, str]:
        found = read_properties(folder / name)
        return {setting: value for setting, value in found.items() if setting.startswith("zookeeper.")}

    with RunningBroker(tmp_path, at(server, "/brokers"), **of_zookeeper("broker.properties")).running() as broker:
        streams = {name.replace(".", "_"): value for name, value in of_zookeeper("streams.properties").items()}
        tls = {name: value for name, value in streams.items() if "_ssl_" in name}
        with klog.Producer(zookeeper=broker.zookeeper, **tls) as producer:
            producer.send("t", klog.Message(b"through"))
        with klog.Consumer(
            broker.zookeeper, "g", auto_offset_reset="smallest", consumer_timeout_ms=20_000, **streams
        ) as consumer:
            (stream,) = consumer.create_message_streams("t")
            assert next(iter(stream)).payload() == b"through"
        access = read_client_config(folder / "client.properties").access
        assert access is not None
        with session_of(ZooKeeperServers(broker.zookeeper, access)) as owner:
            rows = znode_acls.Walks(owner, znode_acls.owner_of(owner), dry_run=True).run()
            assert not any(row.changed for row in rows)


@pytest.mark.long("a second ensemble of ZooKeeper")
@pytest.mark.slow
def test_the_servers_of_an_ensemble_encrypt_among_themselves(
    folder: Path, access: ZooKeeperAccess, tmp_path: Path
) -> None:
    first = ports_in_a_row(9)
    members = parse_ensemble(",".join(f"{one}=127.0.0.1:{first + 2 + one}:{first + 5 + one}" for one in (1, 2, 3)))
    files = (str(folder / "zookeeper.pem"), str(folder / "ca.pem"))

    def started(one: int) -> ZooKeeperServer:
        options = {"port": first + one - 1, "server_id": one, "ensemble": members, "tls": files}
        server = embedded.start(tmp_path / str(one), cache=klog_home() / "cache", **options)  # type: ignore[arg-type]
        server.await_serving()
        return server

    servers: list[ZooKeeperServer] = []
    try:
        servers.append(started(1))
        (row,) = status(tmp_path / "1", tmp_path)
        assert (row.state, row.mode) == ("starting", None), "one of three serves nobody"
        with ThreadPoolExecutor(2) as pool:
            servers += pool.map(started, (2, 3))
        address = ",".join(f"localhost:{first + number}" for number in range(3))
        with ZooKeeper(ZooKeeperServers(address, access)) as session:
            session.start(30)
            session.create("/agreed", b"1")
        assert access.context is not None
        for member in members.values():
            # The election port asks for a certificate, so the handshake ends for a client without one; not before the
            # client has checked the server's.
            with socket.create_connection((member.host, member.election_port), 5) as plain:
                try:
                    access.context.wrap_socket(plain, server_hostname="localhost").close()
                except ssl.SSLCertVerificationError:
                    raise
                except (ssl.SSLError, OSError):
                    pass
    finally:
        for server in servers:
            server.stop()


def test_settings_are_read_as_they_were_written(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    listener = TlsListener(2182, "10.1.2.3", "/a folder/ä€\U0001f511.pem", "/ca\\.pem")
    written = ServerSettings(1234, tls=listener)
    written.write(tmp_path)
    assert settings_of(tmp_path) == written
    replace(written, tls=None).write(tmp_path)
    assert settings_of(tmp_path) == replace(written, tls=None)


@each(
    ("given", "error"),
    [
        ({"zookeeper.ssl.client.enable": "yes"}, UsageError),
        ({"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.truststore.location": "/none.pem"}, NoSuchThing),
        ({"zookeeper.set.acl": "true"}, UsageError),
        ({"zookeeper.username": "klog"}, UsageError),
        ({"zookeeper.password": "p"}, UsageError),
        ({"zookeeper.username": "a", "zookeeper.password": "p", "zookeeper.acl.owner": "a:short"}, UsageError),
    ],
)
def test_wrong_settings_are_named(given: dict[str, str], error: type[KlogError]) -> None:
    with pytest.raises(error) as raised:
        read_access(given, "FILE")
    assert "FILE" in raised.value.message and "zookeeper." in raised.value.message
