"""A session on a Spark Connect server: the plan goes there, klog with it, and only rows come back.

What the server's machines need beside Spark: Python of this minor version, pyarrow, and what else klog's tasks import
(``crc32c``, ``cramjam``, ``kio``, ``numpy``, ``confluent-kafka``). klog itself is sent. All of it is looked at before
anything is written.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from klog.errors import CannotConnect, HostError, UsageError
from klog.names import host_port
from klog.spark.running.package import make_zip
from klog.spark.short_errors import first_line

PORT = 15002
"""Of a Connect server, unless the address says otherwise."""

CONNECT_TIMEOUT_S = 10
"""Until the server counts as unreachable; Spark's own client tries for ten minutes."""


def connect_session(remote: str, settings: Mapping[str, str]) -> Any:
    """A session on the server at ``sc://host[:port]``, which has klog and knows ``format("klog")``.

    UsageError for another address, or if the client's packages are missing; CannotConnect; HostError
    where the server's versions are others.
    """
    _check_listening(remote)
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql.connect.session import SparkSession
    except ImportError as error:
        raise UsageError(
            f"--remote needs Spark's Connect client: {first_line(str(error))}",
            hint="pip install 'klog[connect]'",
        ) from None
    import pyspark

    from klog.spark.running.workers import check_workers
    from klog.spark.source import KlogDataSource

    try:
        session = SparkSession.builder.remote(remote).getOrCreate()
        version = session.version
    except PySparkException as error:
        raise CannotConnect(f"{remote}: {first_line(str(error))}") from error
    if version.split(".")[:2] != pyspark.__version__.split(".")[:2]:
        raise HostError(
            f"the server at {remote} has Spark {version}, this is {pyspark.__version__}",
            hint=f"pip install 'pyspark[connect]=={version}' here, or use a server of {pyspark.__version__}",
        )
    for name, value in settings.items():
        try:
            session.conf.set(name, value)
        except PySparkException as error:
            raise UsageError(
                f"--conf {name}: {first_line(str(error))}", hint="what holds for a server is set there"
            ) from None
    with tempfile.TemporaryDirectory(prefix="klog-connect-") as folder:
        session.addArtifact(str(make_zip(Path(folder))), pyfile=True)
    check_workers(session)
    session.dataSource.register(KlogDataSource)
    return session


def _check_listening(remote: str) -> None:
    address = urlsplit(remote)
    try:
        port = address.port or PORT
    except ValueError:
        port = None
    if address.scheme != "sc" or not address.hostname or port is None:
        raise UsageError(f"--remote {remote}: not like sc://host:{PORT}")
    try:
        socket.create_connection((address.hostname, port), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise CannotConnect(
            f"no Spark Connect server at {host_port(address.hostname, port)}: {error}",
            hint="Spark's sbin/start-connect-server.sh starts one",
        ) from None
