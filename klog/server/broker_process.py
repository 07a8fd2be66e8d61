"""The process of one broker among several of a parent: ``python -m klog.server.broker_process ID FD FORMAT LEVEL``.

Only klog.server.processes starts it; it is `klog broker start` without a command line in memory. ``FD``: the socket to
the parent; ``FORMAT`` and ``LEVEL``: those of the log's lines.
"""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Sequence

from klog.errors import KlogError
from klog.render.log_lines import log_to_stderr
from klog.server import broker
from klog.server.processes import read_config

log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Run the broker until it is asked to stop; the exit code, whose reason is in the log."""
    broker_id, fd, log_format, level = arguments
    log_to_stderr("json" if log_format == "json" else "text", int(level), broker=int(broker_id))
    with socket.socket(fileno=int(fd)) as parent:
        try:
            return broker.run(read_config(parent), parent=parent)
        except KlogError as error:
            log.error("%s", error.message if error.hint is None else f"{error.message} ({error.hint})")
            return error.exit_code
        except Exception:
            log.exception("internal error")
            return KlogError.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
