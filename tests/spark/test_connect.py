"""A Connect server that is not there, or not meant; one that is there stands in test_standalone."""

from __future__ import annotations

import socket
import sys

import pytest

from klog.errors import CannotConnect, HostError, UsageError
from klog.spark.running.connect import connect_session
from klog.spark.running.session import SparkTarget, check_master
from klog.spark.running.workers import explained
from tests.spark.refusals import not_refused


def test_an_address_that_is_none_is_refused() -> None:
    cases = ((one, "sc://host:15002") for one in ("host:15002", "sc://", "spark://host:1", "sc://host:port"))
    assert not_refused(cases, lambda remote: connect_session(remote, {}), UsageError) == []


def test_where_nobody_listens_it_is_said_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(CannotConnect, match=f"127.0.0.1:{port}") as nobody:
        connect_session(f"sc://127.0.0.1:{port}", {})
    assert "start-connect-server" in str(nobody.value.hint)


def test_a_master_that_is_not_there_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_master(f"spark://127.0.0.1:{port}")
        check_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    with pytest.raises(CannotConnect, match=f"spark://127.0.0.1:{port}"):
        check_master(f"spark://127.0.0.1:{port}")
    with pytest.raises(CannotConnect):
        check_master("spark://nowhere")


def test_without_its_packages_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.connect.session", None)
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(UsageError) as missing:
        connect_session(f"sc://127.0.0.1:{server.getsockname()[1]}", {})
    assert "klog[connect]" in str(missing.value.hint)


def test_a_master_and_a_server_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="exclude"):
        SparkTarget("local[2]", "sc://127.0.0.1").session()


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (
            "Job aborted\n  pyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has "
            "different version: 3.9 than that in driver: 3.11, PySpark cannot run with that.\nat java...",
            "version: 3.9 than that in driver: 3.11",
        ),
        (
            'SparkException: x\njava.io.IOException: Cannot run program "python9": error=2, No such file',
            'program "python9"',
        ),
        ("Traceback\nModuleNotFoundError: No module named 'crc32c'\n\tat x", "No module named 'crc32c'"),
        (
            "klog.errors.HostError: the worker on h (/bin/python3) has klog 0.0.9 where the driver has 0.1.0\n",
            "has klog 0.0.9 where",
        ),
        ("something else\nentirely", "something else"),
    ],
)
def test_what_a_worker_lacks_is_told_in_one_line(said: str, meant: str) -> None:
    error = explained(said)
    assert isinstance(error, HostError)
    assert meant in error.message
    assert "\n" not in error.message
