"""A disk in memory, and a log that says nothing of what tests do to it."""

from __future__ import annotations

import logging

import pytest

from tests.faulty_filesystem import FaultyFileSystem


@pytest.fixture
def disk() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
