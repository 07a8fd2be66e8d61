"""``python -m klog`` and the command ``klog``."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys

from klog import __version__
from klog.cli import standard_streams


def main() -> int:
    """Run one command; the exit code. ``--version`` is answered here, before anything slow is imported."""
    if sys.argv[1:] == ["--version"]:
        standard_streams.open_all()
        sys.stdout.write(f"klog {__version__}\n")
        return standard_streams.flush_all(0)
    ended: list[int] = []
    atexit.register(_end, ended)  # the first one is called last
    # A command keeps what it is answered, tens of thousands of partitions: the default walks them again and again.
    gc.set_threshold(50_000, 20, 20)
    try:
        from klog.cli.root import run

        ended.append(run(sys.argv[1:]))
    except KeyboardInterrupt:
        ended.append(130)  # Ctrl-C while it was still being imported
    return ended[0]


def _end(ended: list[int]) -> None:
    """End here, when threads have ended, and let the modules be: to take down a thousand of them, one by one, is a
    fifth of the processor time of a short command. Not where `main` has failed."""
    if ended:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(ended[0])


if __name__ == "__main__":
    sys.exit(main())
