"""`klog export submit`: the line and the zip; that it runs is shown in test_standalone."""

from __future__ import annotations

import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from klog import __version__
from klog.errors import UsageError
from klog.spark.running.package import make_zip
from klog.spark.running.submit import PROGRAM, submission

EXPORT = ["-B", "a:1,b:2", "export", "run", "orders", "--to", "hdfs:///exports/my orders"]


def test_the_line_is_whole_and_quoted(tmp_path: Path) -> None:
    made = submission(EXPORT, tmp_path / "new", master="yarn", deploy_mode="cluster", settings={"spark.x": "a b"})
    words = shlex.split(made.command)
    assert words[:5] == ["spark-submit", "--master", "yarn", "--deploy-mode", "cluster"]
    assert "spark.x=a b" in words
    assert "spark.yarn.maxAppAttempts=1" in words
    assert words[-len(EXPORT) :] == EXPORT
    assert words[-len(EXPORT) - 3 : -len(EXPORT)] == ["--py-files", made.py_files, made.main]
    assert Path(made.main).parent == Path(made.py_files).parent == tmp_path / "new"


def test_files_go_along(tmp_path: Path) -> None:
    made = submission(EXPORT, tmp_path, master="yarn", name="klog stream views", files=[tmp_path / "a b.py"])
    words = shlex.split(made.command)
    assert words[words.index("--files") + 1] == str(tmp_path / "a b.py")
    assert words[words.index("--name") + 1] == "klog stream views"
    assert words[-len(EXPORT) :] == EXPORT


@pytest.mark.parametrize("master", ["spark://h:7077", "local[2]"])
def test_what_spark_cannot_do_is_refused(master: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cluster"):
        submission(EXPORT, tmp_path, master=master, deploy_mode="cluster")


def test_kubernetes_needs_an_image_which_may_be_named(tmp_path: Path) -> None:
    image = "spark.kubernetes.container.image"
    made = submission(EXPORT, tmp_path, master="k8s://https://h:6443", settings={image: "registry/klog:1"})
    assert f"{image}=registry/klog:1" in shlex.split(made.command)
    assert made.command.count(image) == 1


def test_the_program_finds_klog_in_the_zip_alone(tmp_path: Path) -> None:
    made = submission(EXPORT, tmp_path, master="local[2]")
    code = f"""
import runpy, sys
sys.path[:] = [{made.py_files!r}] + [one for one in sys.path if one and one != {str(Path.cwd())!r}]
sys.argv = [{made.main!r}, "--version"]
runpy.run_path({made.main!r}, run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == f"klog {__version__}", done.stderr


def test_the_same_klog_makes_the_same_zip(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    one, other = make_zip(tmp_path), make_zip(tmp_path / "again")
    assert one.read_bytes() == other.read_bytes()
    names = zipfile.ZipFile(one).namelist()
    assert {"klog/__init__.py", "klog/spark/files.py", "pyspark_klog/__init__.py"} <= set(names)
    assert not any("__pycache__" in name for name in names)


def test_the_program_says_by_its_exit_code_whether_it_failed(tmp_path: Path) -> None:
    """Spark takes an application that ends with 0 for one that has succeeded."""
    command = [sys.executable, "-c", PROGRAM, "export", "list", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "none" in done.stderr, done.stderr
