"""What stands before a live cluster: haproxy where it is installed, else the cluster's bootstrap list.

A balancer chooses the broker that a front end first talks to, as in the paper. Kafka's protocol then has the client
talk to the leaders of its partitions, so messages do not pass through it.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from bench.figure3.part import Notes
from klog.coordination.embedded import tail
from klog.coordination.process import ProcessId
from klog.errors import HostError

START_S: Final = 10.0
NAME: Final = "haproxy"
BY_LIST: Final = "the bootstrap list"

CONFIG = """defaults
    mode tcp
    timeout connect 3s
    timeout client 1h
    timeout server 1h
listen live
    bind 127.0.0.1:{port}
    balance roundrobin
{servers}
"""


class Balancer:
    """``address`` is what front ends of the cluster are given."""

    def __init__(self, cluster: str, bootstrap: str, folder: Path, notes: Notes) -> None:
        """Started where haproxy is installed. HostError if it does not come up."""
        self.name = f"balancer-{cluster}"
        self._notes = notes
        self._process: subprocess.Popen[bytes] | None = None
        self.address = bootstrap
        self.kind = BY_LIST
        executable = shutil.which(NAME) or shutil.which(NAME, path="/usr/sbin:/usr/local/sbin")
        if executable is not None:
            self._start(executable, bootstrap, folder)

    def _start(self, executable: str, bootstrap: str, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        servers = "\n".join(f"    server b{number} {one} check" for number, one in enumerate(bootstrap.split(","), 1))
        config, log_file = folder / f"{self.name}.cfg", folder / f"{self.name}.log"
        config.write_text(CONFIG.format(port=port, servers=servers), "utf-8")
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [executable, "-db", "-f", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._notes.enter(self.name, ProcessId.of(self._process.pid))
        deadline = time.monotonic() + START_S
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                break
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise HostError(f"haproxy does not listen on port {port}; its log:\n{tail(log_file)}")
            time.sleep(0.02)
        self.address, self.kind = f"127.0.0.1:{port}", NAME

    @property
    def is_down(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._notes.enter(self.name, None)
