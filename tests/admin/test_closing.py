"""What `klog security add` and `klog security close` make of a broker's settings file."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from klog.admin import closing, security_files
from klog.config import BrokerConfig, read_properties
from klog.errors import InvalidConfig, KlogError, NoSuchThing, Refused
from tests.rows import each

MINE = "# mine\nbroker.id=7\nlisteners=PLAINTEXT://h:9092\nlog.dirs=/a\\\\b\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("closing") / "security"
    security_files.init(where)
    return where


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(MINE)
    path.chmod(0o640)
    return path


def config_of(path: Path) -> BrokerConfig:
    return BrokerConfig.parse(read_properties(path), str(path))


def test_both_listeners_then_one_then_both_again(folder: Path, file: Path) -> None:
    closing.add(file, folder, 9093)
    both = config_of(file)
    assert [(one.name, one.protocol, one.port) for one in both.listeners.all] == [
        ("PLAINTEXT", "PLAINTEXT", 9092),
        ("SASL_SSL", "SASL_SSL", 9093),
    ]
    assert both.listeners.brokers.name == "SASL_SSL" and both.listeners.clients.name == "PLAINTEXT"
    assert both.text("super.users") == "User:broker;User:admin;User:ANONYMOUS"
    assert both.integer("broker.id") == 7 and both.log_dirs == ("/a\\b",)
    assert both.warnings == ()
    first = file.read_text()
    closing.add(file, folder, 9093)
    assert file.read_text() == first
    assert first.startswith(MINE)
    closing.close(file, folder)
    closed = config_of(file)
    assert [(one.name, one.port) for one in closed.listeners.all] == [("SASL_SSL", 9093)]
    assert closed.text("super.users") == "User:broker;User:admin"
    assert file.read_text().startswith(MINE)
    closing.close(file, folder)
    closing.add(file, folder, 9093)
    assert file.read_text() == first


def test_the_file_has_a_password_then_and_is_shown_to_its_owner_alone(folder: Path, file: Path) -> None:
    shown = {one.name: one.value for one in closing.add(file, folder, 9093)}
    password = security_files.passwords(folder)["broker"]
    assert password in file.read_text() and all(password not in value for value in shown.values())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_a_link_stays_one(folder: Path, file: Path) -> None:
    link = file.with_name("link.properties")
    link.symlink_to(file)
    closing.add(link, folder, 9093)
    assert link.is_symlink() and "SASL_SSL" in file.read_text()


def test_what_a_broker_has_already_is_kept(folder: Path, file: Path) -> None:
    """Names of listeners, advertised addresses, super users; with an authorizer each has the rights of before."""
    file.write_text(
        "listeners=IN://[::1]:9092,OUT://0.0.0.0:9192\n"
        "advertised.listeners=IN://[::1]:9092,OUT://outside:9192\n"
        "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT\n"
        "inter.broker.listener.name=IN\n"
        "authorizer.class.name=klog\nsuper.users=User:root;User:broker\nallow.everyone.if.no.acl.found=true\n"
    )
    closing.add(file, folder, 9093)
    config = config_of(file)
    assert {one.name: (one.protocol, one.told_host, one.told_port) for one in config.listeners.all} == {
        "IN": ("PLAINTEXT", "::1", 9092),
        "OUT": ("PLAINTEXT", "outside", 9192),
        "SASL_SSL": ("SASL_SSL", "::1", 9093),
    }
    assert config.text("super.users") == "User:broker;User:admin;User:root"
    assert config.flag("allow.everyone.if.no.acl.found")
    closing.close(file, folder)
    assert [(one.name, one.told_host) for one in config_of(file).listeners.all] == [("SASL_SSL", "::1")]


@each(
    ("text", "error"),
    [
        ("broker.id=1\n", Refused),
        ("listeners=SASL_PLAINTEXT://h:9092\nsecurity.inter.broker.protocol=SASL_PLAINTEXT\n", Refused),
        ("listeners=PLAINTEXT://h:9092,SSL://h:9093\n", Refused),
        ("listeners=PLAINTEXT\n", InvalidConfig),
    ],
)
def test_what_is_refused_changes_nothing(folder: Path, file: Path, text: str, error: type[KlogError]) -> None:
    file.write_text(text)
    with pytest.raises(error):
        closing.add(file, folder, 9093)
    with pytest.raises(KlogError):
        closing.close(file, folder)
    assert file.read_text() == text


def test_what_is_not_there_is_named(folder: Path, file: Path, tmp_path: Path) -> None:
    with pytest.raises(NoSuchThing) as missing:
        closing.add(tmp_path / "nowhere", folder, 9093)
    assert "nowhere" in missing.value.message
    with pytest.raises(NoSuchThing):
        closing.add(file, tmp_path, 9093)
    assert file.read_text() == MINE
