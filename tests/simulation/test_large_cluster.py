"""The simulation of large clusters (`bench.simulation`), small: the real controller, and what holds after each event.

CPU time does not count here, so that a run is the same every time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.simulation.cluster import Cluster
from bench.simulation.costs import Measured
from bench.simulation.page import section
from bench.simulation.record import BEFORE, NOW, Run, SimulationRecord
from bench.simulation.scenarios import Outcome, Scenarios
from klog.coordination.group_slots import SLOTS
from klog.coordination.znodes import MULTI_BYTES_MAX
from klog.server.controller import metadata_updates

BROKERS, PARTITIONS = 10, 300
SESSION_NODES = 4
"""What a broker's registration and a controller's election write beside states and slots."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Brokers are killed by the dozen, and each is logged."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def simulated(seed: int, brokers: int = BROKERS, partitions: int = PARTITIONS) -> dict[str, Outcome]:
    cluster = Cluster(
        brokers=brokers,
        partitions=partitions,
        per_host=2,
        per_topic=30,
        seed=seed,
        measured=Measured(),
        counts_cpu=False,
    )
    try:
        found = cluster.run(Scenarios(cluster, say=lambda _: None, limit_s=100.0).run(rolled=2))
    finally:
        cluster.close()
    return {one.key: one for one in found}


@pytest.mark.long("a bench")
def test_whatever_dies_is_led_again_and_written_in_few_transactions() -> None:
    outcomes = simulated(seed=1)
    assert {key: one.wrong or one.failed for key, one in outcomes.items() if one.wrong or one.failed} == {}
    assert list(outcomes)[-1] == "controller dies" and len(outcomes) == 7
    for one in outcomes.values():
        assert one.figures["largest_multi_bytes"] <= MULTI_BYTES_MAX, one.key
    for what in ("broker dies", "host dies"):
        figures = outcomes[what].figures
        room = SLOTS + SESSION_NODES * figures["brokers"]
        assert figures["replicas"] <= figures["nodes_written"] <= figures["replicas"] + room
        assert figures["transactions"] <= 3 * figures["brokers"], "states go in one transaction, and group slots in one"
        assert figures["led_again_s"] < 0.5
    rolled = outcomes["rolling restart"].figures
    assert rolled["nodes_written"] - rolled["of_leaders"] < 2 * PARTITIONS, "each state once, and its preferred leader"


@pytest.mark.long("a bench")
def test_leaders_do_not_wait_until_all_brokers_have_all_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """One broker at a time is sent everything; what is urgent is sent to those that wait for their turn."""
    monkeypatch.setattr(metadata_updates, "UNDER_WAY_MAX", 1)
    outcomes = simulated(seed=2, brokers=40)
    assert [one.wrong or one.failed for one in outcomes.values() if one.wrong or one.failed] == []
    figures = outcomes["controller dies"].figures
    assert figures["led_again_s"] < figures["told_s"] / 2


@pytest.mark.long("a bench")
def test_the_page_is_made_from_the_record_alone(tmp_path: Path) -> None:
    record = SimulationRecord()
    assert section(record, tmp_path) == ""
    outcomes = list(simulated(seed=1, partitions=90).values())
    for code, date in ((BEFORE, "a"), (NOW, "b")):
        record.add(Run(code, "c0ffee", date, BROKERS, 90, 2, 30, 2, 1, outcomes))
    record.write(tmp_path / "simulation.json")
    read = SimulationRecord.read(tmp_path / "simulation.json")
    assert read == record
    page = section(read, tmp_path)
    assert page == section(record, tmp_path)
    assert "## 10 brokers, simulated" in page and "What was mended" in page and "1,000,000 partitions" in page
