"""What a person may have saved means the same with a byte order mark, in UTF-16, and with other ends of lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from klog.admin import offset_files, profiles, reassignment_file, security_files
from klog.cli import user
from klog.cli.shell import settings as shell_settings
from klog.config.properties import read_properties
from klog.net.tls_context import Store
from klog.render import jsonl
from klog.streams.program import Program
from klog.tools.schemas import schemas_in
from tests.cli.process import started
from tests.security.certificates import Authority

OFFSETS = "billing,orders,0,7\nbilling,orders,1,8\n"
PLAN = '{"version": 1, "partitions": [\n{"topic": "t", "partition": 0, "replicas": [1, 2]}\n]}\n'
FILES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "settings.properties": ("bootstrap.servers=a:1\nacks=all\n", read_properties),
    "offsets.csv": (OFFSETS, offset_files.read),
    "config.toml": ('[near]\nbootstrap_server = "a:1"\n', lambda path: profiles.read_file(path).by_name),
    "shell.toml": ('pager = "topic list"\n', lambda path: shell_settings.load(path).pager),
    "plan.json": (PLAN, reassignment_file.read),
    "passwords.json": ('{"users": {"a": "b"}}', lambda path: security_files.passwords(path.parent)),
    "orders.avsc": ('"string"', lambda path: schemas_in([str(path)])(1)),
    "job.sql": ("select 1\n", lambda path: Program.of(path, None).sql),
}
"""A file's name, what is in it, and what klog makes of it."""


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_file_means_the_same(name: str, encoding: str, tmp_path: Path) -> None:
    text, read = FILES[name]
    path = tmp_path / name
    path.write_text(text)
    wanted = read(path)
    for end in ("\n", "\r\n"):
        path.write_bytes(text.replace("\n", end).encode(encoding))
        assert read(path) == wanted


def test_lines_of_secrets_and_messages(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("secret\n", encoding="utf-8-sig")
    assert user._first_line(secret) == "secret"
    assert jsonl.from_line('{"value": "a"}'.encode("utf-8-sig")).value == b"a"


def test_certificates(tmp_path: Path) -> None:
    pem = Authority(tmp_path).path.read_bytes()
    (tmp_path / "ca.pem").write_bytes(b"\xef\xbb\xbf" + pem)
    assert Store("ssl.truststore", location=str(tmp_path / "ca.pem")).read() == pem


@pytest.mark.parametrize("is_file", [True, False], ids=["file", "stdin"])
def test_scripts_of_the_shell(is_file: bool, tmp_path: Path) -> None:
    script = "echo first\necho second\n".encode("utf-8-sig")
    (tmp_path / "script").write_bytes(script)
    words = ("-f", str(tmp_path / "script")) if is_file else ()
    with started("shell", *words) as process:
        out, err = process.communicate(script, timeout=60)
    assert (process.returncode, out) == (0, b"first\nsecond\n"), err
