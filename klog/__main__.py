"""``python -m klog`` and the command ``klog``."""

from __future__ import annotations

import gc
import sys

from klog import __version__
from klog.cli import standard_streams


def main() -> int:
    """Run one command; the exit code. ``--version`` is answered here, before anything slow is imported."""
    if sys.argv[1:] == ["--version"]:
        standard_streams.open_all()
        sys.stdout.write(f"klog {__version__}\n")
        return standard_streams.flush_all(0)
    # A command keeps what it is answered, tens of thousands of partitions: the default walks them again and again.
    gc.set_threshold(50_000, 20, 20)
    try:
        from klog.cli.root import run

        return run(sys.argv[1:])
    except KeyboardInterrupt:
        return 130  # Ctrl-C while it was still being imported


if __name__ == "__main__":
    sys.exit(main())
