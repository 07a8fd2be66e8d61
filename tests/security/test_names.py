"""Principals, mapping rules, subjects of certificates, and lines of sasl.jaas.config."""

from __future__ import annotations

import base64
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import InvalidConfig
from klog.security.certificates import expires_at, pem_of, subject_of
from klog.security.jaas import Jaas
from klog.security.principal import ANONYMOUS, MappingRules, Principal
from tests.rows import each
from tests.security.certificates import DAY, Authority


def test_principals_as_text() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert Principal.parse("User:CN=a:b") == Principal("User", "CN=a:b")
    for text in ("", "User", "User:", ":x"):
        with pytest.raises(InvalidConfig):
            Principal.parse(text)


SUBJECT = "CN=Alice,OU=ServiceUsers,O=Org"


@each(
    ("rules", "name"),
    [
        ("DEFAULT", SUBJECT),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Alice"),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", "alice"),
        (r"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U,DEFAULT", "ALICE@SERVICEUSERS"),
        (r"RULE:^CN=(.*?),OU=Other$/$1/,DEFAULT", SUBJECT),
        (r"RULE:CN=Alice/x/", None),
        (r"RULE:^.*$/a\/b/", "a/b"),
    ],
)
def test_rules(rules: str, name: str | None) -> None:
    assert MappingRules(rules).name_of(SUBJECT) == name


@each("rules", ["", "RULE:", "RULE:a/b", "RULE:(/x/", "RULE:a/$1/", "DEFAULT,", "RULE:a/b/X", "default"])
def test_rules_that_mean_nothing(rules: str) -> None:
    with pytest.raises(InvalidConfig, match=r"ssl\.principal\.mapping\.rules"):
        MappingRules(rules)


def test_subjects_are_written_as_java_writes_them() -> None:
    certificate = {
        "subject": (
            (("countryName", "DE"),),
            (("organizationName", 'A, "B"; <C> + D'),),
            (("emailAddress", "a@b"),),
            (("commonName", " #x "),),
        )
    }
    assert subject_of(certificate) == r"CN=\ #x\ ,1.2.840.113549.1.9.1=#1603614062,O=A\, \"B\"\; \<C\> \+ D,C=DE"
    assert subject_of({}) == ""


def test_the_end_of_a_certificate_is_that_which_openssl_reads(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    path = authority.issue(tmp_path / "one.pem", ends=10 * DAY)
    text = subprocess.run(
        ["openssl", "x509", "-in", path, "-noout", "-enddate"], capture_output=True, text=True, check=True
    ).stdout
    told = datetime.strptime(text.strip().partition("=")[2], "%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC)
    found = expires_at(path.read_bytes())
    assert found == told
    later = authority.issue(tmp_path / "two.pem", ends=400 * 365 * timedelta(days=1) // 10)
    assert expires_at(later.read_bytes() + path.read_bytes()) == told
    assert expires_at(later.read_bytes()) > told  # type: ignore[operator]
    assert expires_at(b"") is None


@given(st.binary(max_size=60))
def test_no_certificate(data: bytes) -> None:
    pem = b"-----BEGIN CERTIFICATE-----\n" + base64.b64encode(data) + b"\n-----END CERTIFICATE-----\n"
    assert expires_at(pem) is None


def test_a_file_is_what_its_content_says_or_its_type_or_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pem = authority.path.read_bytes()
    assert pem_of(b"\xef\xbb\xbf" + pem, "store", "JKS", None) == (pem, pem)
    assert pem_of(pem, "store.p12", "PKCS12", None) == (pem, pem)
    own = authority.issue(tmp_path / "own.p12", password=b"of own").read_bytes()
    key, chain = pem_of(own, "store", "JKS", "of own")
    assert key.startswith(b"-----BEGIN PRIVATE KEY") and chain.startswith(b"-----BEGIN CERTIFICATE")
    for data, name, kind, said in (
        (b"\xfe\xed\xfe\xed", "store", "JKS", "JKS"),
        (b"nothing", "store.pem", "JKS", "PEM"),
        (b"nothing", "store.p12", "", "PKCS12"),
        (own, "store", "", "password"),
    ):
        with pytest.raises(ValueError, match=said):
            pem_of(data, name, kind, "another")


def test_lines_of_jaas() -> None:
    found = Jaas.parse(
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="a b" '
        'password="x\\"y;\\\\" user_a="1"\n user_b=\'2\' serviceName=kafka;'
    )
    assert (found.username, found.password, found.users) == ("a b", 'x"y;\\', {"a": "1", "b": "2"})
    assert "1" not in repr(found) and "x" not in repr(found)
    assert Jaas.parse("M required;") == Jaas()


@each("text", ["", "M", "M required user_a", 'M required a="secret', "M required a=secret; more", "M often a=b;"])
def test_lines_that_mean_nothing_show_no_secret(text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        Jaas.parse(text)
    assert "secret" not in caught.value.message
