"""Work in a thread of its own, beside the demo's."""

from __future__ import annotations

import threading
from typing import Self


class Background:
    """`start` and `stop` by one thread. What it does is `_work`, which ends soon after `_end` is set."""

    def __init__(self, name: str) -> None:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"klog-{name}", daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """It has ended when this returns; nothing happens where it was never started."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        raise NotImplementedError
