"""Quix Streams and Faust on a klog broker: what they count is right, and their state comes back from the changelog."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.broker_fixture import RunningBroker
from tests.interop.kit import PATIENCE_S, cleanup_policy
from tests.interop.test_kafka_streams import PARTITIONS, Sent, wait_for_counts
from tests.tools.verbs import make_topic

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long(
        "their packages are installed; witness that stays in the default tier: tests/server/test_cleanup_policy.py"
    ),
]

INSTALLED_WITHIN_S = 300


class Framework(NamedTuple):
    """``skips``: so many messages at the most when it is started again, on Kafka 3.9 too."""

    package: str
    program: str
    changelog: str
    skips: int = 0


FRAMEWORKS = {
    "quix": Framework("quixstreams==3.28.1", "quix_program.py", "changelog__{0}--{0}--default"),
    "faust": Framework("faust-streaming==0.15.3", "faust_program.py", "{0}-counts-changelog", skips=50),
}


@pytest.fixture(scope="module", params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> Framework:
    return FRAMEWORKS[request.param]


@pytest.fixture(scope="module")
def packages(framework: Framework, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the framework and what it needs."""
    folder = tmp_path_factory.mktemp("packages")
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), framework.package]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALLED_WITHIN_S, check=False)
    if done.returncode != 0:
        pytest.skip(f"pip cannot install {framework.package}: {done.stderr.strip()[-300:]}")
    return folder


def test_counts_are_right_and_go_on_in_an_empty_folder(
    broker: RunningBroker, topic: str, framework: Framework, packages: Path, tmp_path: Path
) -> None:
    for name in (topic, f"{topic}-table"):
        make_topic(broker.bootstrap, name, PARTITIONS)
    sent = Sent(broker.bootstrap, topic)
    for folder, skips in (("first", 0), ("second", framework.skips)):
        sent.send_half()
        process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name(framework.program), broker.bootstrap, topic, tmp_path / folder],
            env={**os.environ, "PYTHONPATH": str(packages)},
            stdin=subprocess.DEVNULL,
        )
        try:
            wait_for_counts(broker.bootstrap, f"{topic}-table", sent.table, missing=skips)
            process.terminate()
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
            process.wait()
        assert any(os.scandir(tmp_path / folder)), "its state was there"
    assert cleanup_policy(broker.bootstrap, framework.changelog.format(topic)) == "compact"
