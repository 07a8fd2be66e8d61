"""``format("klog")`` is found by its name alone, from a folder that is not klog's, however klog was installed.

Spark looks for modules by listing what lies on the path of its workers' Python. Each way of installing gets a virtual
environment of its own, which sees the packages of this one, but not its klog.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.broker_fixture import ROOT
from tests.spark.conftest import NewTopic, make_messages
from tests.spark.quick_java import spark_environment

WAYS = {"editable": ["--editable"], "plain": []}

QUERY = """\
rows = spark.read.format("klog").option("kafka.bootstrap.servers", "{bootstrap}").option("subscribe", "{topic}").load()
print("counted", rows.count())
"""

OWN_SESSION = """\
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
"""


def install(folder: Path, way: str) -> Path:
    """A virtual environment with klog, from a copy of its sources: installing leaves files beside them."""
    sources = folder / "sources"
    sources.mkdir()
    for name in ("klog", "pyspark_klog"):
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    place = folder / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    python = place / "bin" / "python3"
    purelib = _said(python, "import sysconfig; print(sysconfig.get_path('purelib'))", folder)
    (Path(purelib) / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run(
        [*pip, "--no-build-isolation", "--ignore-installed", *WAYS[way], sources],
        check=True,
        cwd=folder,
        env=_environment(place),
        capture_output=True,
    )
    return place


def _environment(place: Path) -> dict[str, str]:
    """As `. bin/activate` leaves it; nothing tells Spark or Python where klog lies."""
    silent = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    path = os.pathsep.join([str(place / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    return silent | spark_environment() | {"PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}


def _said(python: Path, program: str, folder: Path) -> str:
    ran = subprocess.run([python, "-c", program], cwd=folder, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long("installations, each with a JVM of its own")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("way", "shell"), [("editable", False), ("plain", True)], ids=["script", "shell"])
def test_it_is_found_by_spark(new_topic: NewTopic, tmp_path: Path, way: str, shell: bool) -> None:
    topic = new_topic()
    topic.produce(make_messages(17))
    place = install(tmp_path, way)
    query = QUERY.format(bootstrap=topic.bootstrap, topic=topic.name)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if shell:
        command = ["pyspark", "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    else:
        (tmp_path / "query.py").write_text(OWN_SESSION + query)
        command = ["python3", str(tmp_path / "query.py")]
    ran = subprocess.run(
        command,
        check=False,
        cwd=elsewhere,
        env=_environment(place) | {"PYSPARK_DRIVER_PYTHON_OPTS": "-i"},  # the shell, though nobody types
        input=query,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert "counted 17" in ran.stdout, ran.stderr
