"""Quix Streams on a klog broker: what it counts is right, and its state comes back from the changelog topic."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker_fixture import RunningBroker
from tests.interop.kit import PATIENCE_S, cleanup_policy
from tests.interop.test_kafka_streams import PARTITIONS, Sent, wait_for_counts
from tests.tools.verbs import make_topic

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long(
        "its package is installed; witness that stays in the default tier: tests/server/test_cleanup_policy.py"
    ),
]

PACKAGE = "quixstreams==3.28.1"
PROGRAM = Path(__file__).parent / "quix_program.py"
INSTALLED_WITHIN_S = 300


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Quix Streams and what it needs, its own confluent-kafka among it."""
    folder = tmp_path_factory.mktemp("quix")
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALLED_WITHIN_S, check=False)
    if done.returncode != 0:
        pytest.skip(f"pip cannot install {PACKAGE}: {done.stderr.strip()[-300:]}")
    return folder


def test_counts_are_right_and_go_on_in_an_empty_folder(
    broker: RunningBroker, topic: str, packages: Path, tmp_path: Path
) -> None:
    for name in (topic, f"{topic}-table"):
        make_topic(broker.bootstrap, name, PARTITIONS)
    sent = Sent(broker.bootstrap, topic)
    for folder in ("first", "second"):
        sent.send_half()
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), broker.bootstrap, topic, str(tmp_path / folder)],
            env={**os.environ, "PYTHONPATH": str(packages)},
            stdin=subprocess.DEVNULL,
        )
        try:
            wait_for_counts(broker.bootstrap, f"{topic}-table", sent.table)
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
            process.wait()
        assert any(os.scandir(tmp_path / folder)), "its state was there"
    assert cleanup_policy(broker.bootstrap, f"changelog__{topic}--{topic}--default") == "compact"
