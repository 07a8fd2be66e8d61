"""What the tests of frameworks share."""

from __future__ import annotations

import pytest

from bench.maven import JavaTools, PeerMissing, frameworks


@pytest.fixture(scope="session")
def framework_tools() -> JavaTools:
    """Kafka Streams, Connect and MirrorMaker 2."""
    try:
        return frameworks()
    except PeerMissing as reason:
        pytest.skip(str(reason))
