"""What closes a cluster: certificates that TLS takes, files for their owner's eyes, a folder whole or not at all."""

from __future__ import annotations

import os
import socket
import ssl
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from klog.admin import security_files
from klog.admin.certificates import issue, new_authority
from klog.client.client_config import read_client_config
from klog.config.properties import read_properties
from klog.errors import DiskFull, Refused, UsageError
from klog.net.client_tls import client_context
from klog.security.client_security import ClientSecurity
from tests.rows import each


def shaken(server_pem: Path, client: ssl.SSLContext, host: str) -> str | None:
    """The version of TLS that two ends agree on in memory, by OpenSSL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server_pem)
    one, other = socket.socketpair()
    with one, other:
        serving = threading.Thread(target=_serve, args=(context, one))
        serving.start()
        try:
            with client.wrap_socket(other, server_hostname=host) as tls:
                tls.recv(1)
                return tls.version()
        finally:
            other.close()
            serving.join()


def _serve(context: ssl.SSLContext, sock: socket.socket) -> None:
    try:
        with context.wrap_socket(sock, server_side=True) as tls:
            tls.send(b"!")
    except OSError:
        pass  # the client has refused


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("security") / "secrets"
    security_files.init(made, ["broker-1.example.net", "10.1.2.3"])
    return made


@each("host", ["localhost", "127.0.0.1", "broker-1.example.net", "10.1.2.3"])
def test_clients_believe_the_brokers_certificate(folder: Path, host: str) -> None:
    security = read_client_config(folder / "client.properties").security
    assert security is not None and security.mechanism == "SCRAM-SHA-512" and security.username == "admin"
    context = client_context(security)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    assert shaken(folder / "broker.pem", context, host) == "TLSv1.3"


def test_a_host_that_was_not_named_is_refused(folder: Path) -> None:
    security = read_client_config(folder / "client.properties").security
    assert security is not None
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(folder / "broker.pem", client_context(security), "elsewhere.example.net")


def test_another_authority_and_a_certificate_of_yesterday_are_refused(tmp_path: Path) -> None:
    authority, other = new_authority("one"), new_authority("other")
    old = datetime(2020, 1, 1, tzinfo=UTC)
    for name, pem in {
        "other.pem": issue(other, "broker", ["localhost"]),
        "old.pem": issue(authority, "broker", ["localhost"], days=1, now=old),
    }.items():
        (tmp_path / name).write_bytes(pem)
        client = client_context(ClientSecurity("SSL", authorities=authority.certificate_pem.decode()))
        with pytest.raises(ssl.SSLCertVerificationError):
            shaken(tmp_path / name, client, "localhost")


def test_files_are_for_their_owner(folder: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes.pop("ca.pem") == 0o644
    assert modes and set(modes.values()) == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {row.file for row in security_files.rows(folder)} == {str(path) for path in folder.iterdir()}


def test_settings_name_files_that_are_there(folder: Path) -> None:
    for name in ("broker.properties", "client.properties"):
        settings = read_properties(folder / name)
        locations = [value for setting, value in settings.items() if setting.endswith(".location")]
        assert locations and all(Path(one).is_file() for one in locations)
    users = security_files.passwords(folder)
    assert users.keys() == {"admin", "broker"} and len({*users.values()}) == 2
    assert users["broker"] in (folder / "broker.properties").read_text()
    assert users["admin"] not in (folder / "broker.properties").read_text()


def test_nothing_is_written_over(folder: Path) -> None:
    before = (folder / "ca.pem").read_bytes()
    with pytest.raises(Refused):
        security_files.init(folder)
    assert (folder / "ca.pem").read_bytes() == before


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DiskFull):
        security_files.init(tmp_path / "security")
    assert list(tmp_path.iterdir()) == []


@each("name", ["", "broker", "a;b", 'a"b', "a b"])
def test_names_that_no_administrator_can_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        security_files.init(tmp_path / "security", administrator=name)
    assert list(tmp_path.iterdir()) == []
