"""Hosts with addresses of their own on one machine: network namespaces behind a switch, which is in one as well.

Nothing outside of them is touched. `why_not` says where the machine does not let us.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
CLONE_NEWNET = 0x40000000
IP_S = 20.0


class Network:
    """Hosts 1 to N at 10.0.0.1 to 10.0.0.N. `end` removes all of it; what runs on a host is the caller's to end."""

    def __init__(self, hosts: int) -> None:
        self._mark = secrets.token_hex(3)
        self.hosts = range(1, hosts + 1)
        self._switch = f"klog-{self._mark}-switch"
        self._made: list[str] = []
        try:
            self._make(self._switch)
            ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
            ip("-n", self._switch, "link", "set", "bridge", "up")
            for host in self.hosts:
                name = self.namespace(host)
                self._make(name)
                ip("-n", name, "link", "add", "lan", "type", "veth", "peer", "name", self._port(host))
                ip("-n", name, "link", "set", self._port(host), "netns", self._switch)
                ip("-n", self._switch, "link", "set", self._port(host), "master", "bridge", "up")
                ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "lan")
                for link in ("lo", "lan"):
                    ip("-n", name, "link", "set", link, "up")
        except BaseException:
            self.end()
            raise

    def _make(self, name: str) -> None:
        ip("netns", "add", name)
        self._made.append(name)

    def namespace(self, host: int) -> str:
        return f"klog-{self._mark}-{host}"

    @staticmethod
    def address(host: int) -> str:
        return f"10.0.0.{host}"

    @staticmethod
    def _port(host: int) -> str:
        return f"port{host}"

    def cut_off(self, host: int) -> None:
        """Nothing reaches it and nothing leaves it, as when its cable is drawn."""
        ip("-n", self._switch, "link", "set", self._port(host), "down")

    def heal(self, host: int) -> None:
        ip("-n", self._switch, "link", "set", self._port(host), "up")

    def command(self, host: int, words: Sequence[str]) -> list[str]:
        """The command line that runs these words on a host."""
        return ["ip", "netns", "exec", self.namespace(host), *words]

    def on(self, host: int, work: Callable[[], T]) -> T:
        """Run it in a thread that is on the host, and so are the threads that it starts."""

        def there() -> T:
            with Path("/run/netns", self.namespace(host)).open("rb") as where:
                if ctypes.CDLL(None, use_errno=True).setns(where.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            return work()

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(there).result()

    def end(self) -> None:
        for name in self._made:
            ip("netns", "delete", name)
        self._made.clear()


def why_not() -> str:
    """Why there can be no such network here; "" where there can."""
    if os.geteuid() != 0:
        return "network namespaces take root"
    try:
        Network(1).end()
    except (OSError, subprocess.SubprocessError) as error:
        return f"network namespaces cannot be made: {error}"
    return ""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=IP_S)
