"""A disk that answers no more: brokers preloaded with `hung_disk.c` wait in real file calls of one folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.broker_fixture import RunningBroker

SOURCE = Path(__file__).with_name("hung_disk.c")


class HungDisk:
    """``folder`` as the brokers that were given `to` see it. It answers until `hang`, and again after `heal`."""

    def __init__(self, workshop: Path, folder: Path) -> None:
        self._library = workshop / "hung_disk.so"
        self._switch = workshop / "hung"
        self._folder = folder
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("there is no C compiler here to make the hung disk with")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", self._library, SOURCE, "-ldl"], check=True)

    def to(self, broker: RunningBroker) -> None:
        """Before it is started."""
        broker.wrapper = [
            *("env", f"LD_PRELOAD={self._library}", f"HUNG_SWITCH={self._switch}"),
            f"HUNG_FOLDER={self._folder}{os.sep}",
            *broker.wrapper,
        ]

    def hang(self, acts: str) -> None:
        """From now on these wait: ``r`` reads of what is not cached, ``R`` all, ``w`` writes, ``s``
        syncs, ``n`` names."""
        temporary = self._switch.with_suffix(".new")
        temporary.write_text(acts)
        temporary.replace(self._switch)

    def heal(self) -> None:
        """All that waits goes on."""
        self._switch.unlink(missing_ok=True)
