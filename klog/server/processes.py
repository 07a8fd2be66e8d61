"""Several brokers of one host as processes of one parent (`klog broker start --processes N`).

A broker is one event loop, so it uses one core and a little more. The parent divides one configuration
(klog.config.processes), starts a process per broker, and restarts it:

* a process that ends before it has ever served ends all of them, with its exit code: its settings are wrong;
* later, one that ends by a fault is restarted, after a pause that doubles up to half a minute;
* one that was asked to stop (`klog broker stop ID`) stays stopped, and one that was asked to restart starts at once.

The parent and each process share a socket. Over it the process gets its configuration (one line of JSON, so that no
setting shows in the list of processes), and sends ``ready HOST:PORT``. When the parent has died the socket closes, and
the process shuts down: a second parent could not start brokers whose ports and log dirs are in use.

A stop goes from the last broker to the first, one at a time, so that leaderships move to those that still serve.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from klog.config import BrokerConfig
from klog.coordination.process import RESTART_CODE, python_command, show_stopping
from klog.errors import HostError, InvalidConfig
from klog.signals import StopRequest

log = logging.getLogger(__name__)

MODULE: Final = "klog.server.broker_process"
PAUSE_S: Final = 0.5
PAUSE_MAX_S: Final = 30.0
STEADY_S: Final = 60.0
"""One that has served that long is restarted after the shortest pause."""
READY_LINE_BYTES_MAX: Final = 1024
CONFIG_BYTES_MAX: Final = 4 << 20
KILLED_CODE: Final = 130


def run(configs: Sequence[BrokerConfig], log_format: str, level: int, *, ready_fd: int | None = None) -> int:
    """Run these brokers until a signal asks to stop, or until none is left; the exit code.

    ``log_format`` (text or json) and ``level``: of the log lines of all. ``ready_fd`` gets the line ``ready
    HOST:PORT,HOST:PORT...`` when all of them serve.
    """
    return asyncio.run(_run(configs, log_format, level, ready_fd))


def read_config(parent: socket.socket) -> BrokerConfig:
    """The configuration that the parent sends to this process. Blocks until it is there."""
    line = b""
    while not line.endswith(b"\n"):
        part = parent.recv(1 << 16)
        if not part or len(line) > CONFIG_BYTES_MAX:
            raise InvalidConfig(f"the parent process ended before it had sent the settings ({len(line)} bytes came)")
        line += part
    return BrokerConfig.layered([(str(source), settings) for source, settings in json.loads(line)])


class BrokerProcess:
    """One broker's process, restarted when it ends by a fault. Event loop only."""

    def __init__(self, config: BrokerConfig, log_format: str, level: int) -> None:
        self.broker_id = config.integer("broker.id")
        self.ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The address, when it has served for the first time."""
        self._config = config
        self._log = (log_format, level)
        self._process: asyncio.subprocess.Process | None = None
        self._stop_asked = asyncio.Event()

    async def keep(self) -> int:
        """Return when it is to stay ended: the last exit code, 0 if it was asked to stop."""
        loop = asyncio.get_running_loop()
        pause_s = PAUSE_S
        while True:
            begun_s = loop.time()
            code = await self._run_once()
            if self._stop_asked.is_set() or not self.ready.done():
                return code
            if code == 0:
                log.info("broker %d was asked to stop and stays stopped", self.broker_id)
                return 0
            if code == RESTART_CODE:
                log.info("broker %d was asked to restart", self.broker_id)
                continue
            if loop.time() - begun_s >= STEADY_S:
                pause_s = PAUSE_S
            log.error("broker %d %s; it is started again in %g s", self.broker_id, _ending(code), pause_s)
            try:
                async with asyncio.timeout(pause_s):
                    await self._stop_asked.wait()
                return code
            except TimeoutError:
                pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to stop; `keep` returns when it has. By SIGKILL it ends at once."""
        self._stop_asked.set()
        if self._process is not None and self._process.returncode is None:
            # `send_signal` first looks whether the process has ended, and so takes its exit code away from asyncio.
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    async def _run_once(self) -> int:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with ours:
            with theirs:
                words, env = python_command(MODULE, self.broker_id, theirs.fileno(), *self._log)
                self._process = await asyncio.create_subprocess_exec(
                    *words,
                    stdin=asyncio.subprocess.DEVNULL,
                    env=env,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # Ctrl-C reaches the parent alone, which stops them in order
                )
            if self._stop_asked.is_set():
                self.stop()
            hearing = asyncio.ensure_future(self._hear(ours))
            try:
                return await self._process.wait()
            finally:
                hearing.cancel()

    async def _hear(self, ours: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        line = b""
        try:
            await loop.sock_sendall(ours, json.dumps(self._config.layers()).encode() + b"\n")
            while not line.endswith(b"\n"):
                part = await loop.sock_recv(ours, READY_LINE_BYTES_MAX)
                if not part or len(line) > READY_LINE_BYTES_MAX:
                    return
                line += part
        except ConnectionError:  # its exit code tells more
            return
        if not self.ready.done():
            self.ready.set_result(line.decode().removeprefix("ready ").strip())


async def _run(configs: Sequence[BrokerConfig], log_format: str, level: int, ready_fd: int | None) -> int:
    loop = asyncio.get_running_loop()
    processes = [BrokerProcess(config, log_format, level) for config in configs]
    stopping, asked = asyncio.Event(), StopRequest()

    def heard(number: signal.Signals) -> None:
        if not asked.again():
            return
        if stopping.is_set() and number == signal.SIGINT:
            log.warning("interrupted again: killing the brokers")
            for one in processes:
                one.stop(signal.SIGKILL)
        elif not stopping.is_set():
            log.info("stopping %d brokers: %s", len(processes), number.name)
            show_stopping()
            stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, heard, number)
    kept = [asyncio.ensure_future(one.keep()) for one in processes]
    told = asyncio.ensure_future(_tell_ready(processes, ready_fd))
    asked_to_stop = asyncio.ensure_future(stopping.wait())
    failed: int | None = None
    try:
        left = set(kept)
        while left and not stopping.is_set() and failed is None:
            ended, _ = await asyncio.wait({*left, asked_to_stop}, return_when=asyncio.FIRST_COMPLETED)
            left -= ended
            for process, task in zip(processes, kept, strict=True):
                if task in ended and not process.ready.done() and failed is None and not stopping.is_set():
                    failed = task.result() or 1
                    log.error("broker %d %s before it served: stopping all", process.broker_id, _ending(failed))
        for process, task in reversed(list(zip(processes, kept, strict=True))):
            process.stop()
            await task
    finally:
        for process in processes:
            process.stop(signal.SIGKILL)
        told.cancel()
        asked_to_stop.cancel()
    if failed is not None:
        return failed if failed > 0 else HostError.exit_code
    codes = [task.result() for task in kept]
    return 0 if not any(codes) else KILLED_CODE if asked.count > 1 else HostError.exit_code


async def _tell_ready(processes: Sequence[BrokerProcess], ready_fd: int | None) -> None:
    addresses = [await one.ready for one in processes]
    log.info("%d brokers serve: %s", len(processes), ", ".join(addresses))
    if ready_fd is not None:
        try:
            with os.fdopen(ready_fd, "w") as ready:
                print(f"ready {','.join(addresses)}", file=ready)
        except BrokenPipeError:  # as in klog.server.broker
            log.info("the process that started these brokers has ended; they serve on")


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
