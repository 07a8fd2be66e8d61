"""`scripts/bench --encrypted`: TLS and SCRAM at every connection, klog beside Kafka.

Both systems have the same key and certificate, made by `klog security init`, and a second listener without either, over
which topics are made and the topic of the consumers is filled. The clients' own cost of TLS is in every rate.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from bench import bars, workloads
from bench.consume import consume_together
from bench.doors import MECHANISM, PASSWORD, USER, Door
from bench.klog_system import Klog, environment
from bench.maven import PeerMissing
from bench.peers import KafkaKraft, System, kafka
from bench.processes import StartFailed, free_port
from bench.produce import Shape, fill, produce, pump
from bench.run import FAILURES, say
from bench.run_record import RunRecord, numbered
from bench.topics import TIMEOUT_S, admin_client, fresh_topic
from bench.wire import Connection
from bench.workloads import MOVED, Figures, Sizes

NAMES: Final = (bars.KLOG, bars.KAFKA)
ITERATIONS: Final = 4096
PRODUCED: Final = {bars.TLS_BATCHED: Shape(None), bars.TLS_50: Shape(50, queue=50_000)}
PUMPED: Final = {bars.TLS_PUMP_BATCHED: (4500, 5), bars.TLS_PUMP_50: (50, 200), bars.TLS_PUMP_1: (1, 1000)}
"""Row -> messages a request, requests in flight."""
CONSUMED: Final = {bars.TLS_CONSUME: (1, 4), bars.TLS_CONSUME_10: (10, 1)}
"""Row -> clients, passes."""
CONNECTING: Final = 4
"""Threads that connect and log in, each one connection after the other."""

Measure = Callable[[System, Door, str], Figures]


def run(record: RunRecord, folder: Path, sizes: Sizes, rounds: int, names: Sequence[str]) -> None:
    """Fills the record; everything that was started has ended."""
    systems: list[tuple[System, Door]] = []
    try:
        for name in names:
            try:
                systems.append(_started(record, name, folder))
            except (PeerMissing, StartFailed) as error:
                record.notes.append(f"{name} is left out: {error}")
        for row, measure in _rows(sizes).items():
            for number in numbered(rounds):
                shift = number % max(len(systems), 1)
                for system, door in systems[shift:] + systems[:shift]:
                    _one(record, row, measure, system, door, counts=number >= 0)
    finally:
        for system, _ in systems:
            system.stop()


def _started(record: RunRecord, name: str, folder: Path) -> tuple[System, Door]:
    security = folder / "security"
    if not security.exists():
        command = [sys.executable, "-m", "klog", "security", "init", "--dir", str(security)]
        done = subprocess.run(
            command, env=environment(folder / "any"), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        if done.returncode:
            raise StartFailed(f"klog security init: {done.stderr}")
    door = Door(free_port(), security / "ca.pem")
    settings = {
        "sasl.enabled.mechanisms": MECHANISM,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(security / "broker.pem"),
    }
    system = Klog(name, folder / name, {}) if name == bars.KLOG else kafka(name, folder / name)
    system.options.update(settings, **_listeners(system, door))
    try:
        system.prepare()
        system.start("first")
        _add_user(system)
        with Connection(door):
            pass  # or every row would say that nothing listens
    except FAILURES as error:
        system.stop()
        raise StartFailed(str(error)) from None
    record.versions[name] = system.version
    record.options[name] = {"listeners": "PLAINTEXT and SASL_SSL", "sasl.enabled.mechanisms": MECHANISM}
    say(f"{name} {system.version} is up")
    return system, door


def _listeners(system: System, door: Door) -> dict[str, str]:
    assert isinstance(system, Klog | KafkaKraft)
    clients = f"PLAINTEXT://127.0.0.1:{system.port},SASL_SSL://127.0.0.1:{door.port}"
    if isinstance(system, Klog):
        return {"listeners": clients}
    return {
        "listeners": f"{clients},CONTROLLER://127.0.0.1:{system.controller_port}",
        "advertised.listeners": clients,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }


def _add_user(system: System) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, ITERATIONS)
    added = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
    admin = admin_client(system.port)  # kept until the answer is there
    admin.alter_user_scram_credentials([added])[USER].result(TIMEOUT_S)


def _rows(sizes: Sizes) -> dict[str, Measure]:
    """In the order in which they are measured."""

    def by_stock_client(shape: Shape) -> Measure:
        def measure(system: System, door: Door, topic: str) -> Figures:
            secured = Shape(shape.batch, queue=shape.queue, extra=door.stock_settings())
            return workloads.produced(system, lambda: produce(door.port, topic, secured, sizes.seconds))

        return measure

    def ready_made(batch: int, in_flight: int) -> Measure:
        return lambda system, door, topic: workloads.produced(
            system, lambda: pump(door, topic, batch, 200, in_flight, sizes.seconds)
        )

    def consumed(clients: int, passes: int) -> Measure:
        def measure(system: System, door: Door, topic: str) -> Figures:
            messages = fill(system.port, topic, workloads.FILL_MESSAGES, 200, sizes.consume_bytes)
            return workloads.consumed(system, lambda: consume_together(door, topic, messages, clients, passes))

        return measure

    return {
        **{row: by_stock_client(shape) for row, shape in PRODUCED.items()},
        **{row: ready_made(*shape) for row, shape in PUMPED.items()},
        **{row: consumed(*shape) for row, shape in CONSUMED.items()},
        bars.TLS_CONNECT: lambda system, door, _: _connected(system, door, sizes.seconds),
    }


def _one(record: RunRecord, row: str, measure: Measure, system: System, door: Door, *, counts: bool) -> None:
    try:
        with fresh_topic(admin_client(system.port)) as topic:
            figures = {name: value for name, value in measure(system, door, topic).items() if name != MOVED}
    except FAILURES as error:
        record.notes.append(f"{row}: {system.name}: {error}")
        return
    if counts:
        record.add(row, system.name, figures)
        say(f"{row}: {system.name}: " + ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))


def _connected(system: System, door: Door, seconds: float) -> Figures:
    """A TLS handshake, a login and a request for the versions, again and again."""
    ended = time.perf_counter() + seconds
    made: list[int] = []
    failures: list[Exception] = []

    def one() -> None:
        number = 0
        try:
            while time.perf_counter() < ended:
                with Connection(door) as connection:
                    connection.version(0)
                number += 1
        except Exception as error:
            failures.append(error)
        made.append(number)

    def all_of_them() -> float:
        threads = [threading.Thread(target=one) for _ in range(CONNECTING)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - began

    took_s, broker_cpu, client_cpu = workloads.weighed(system, all_of_them)
    if failures:
        raise failures[0]
    count = sum(made)
    return {
        "connections_per_s": count / took_s,
        "broker_cpu_ms": 1e3 * broker_cpu / max(count, 1),
        "client_cores": client_cpu / took_s,
    }
