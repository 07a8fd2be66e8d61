"""What spark-submit runs: ``klog`` with the arguments after it, on the cluster that spark-submit was given.

    spark-submit --master yarn --deploy-mode cluster --py-files klog-0.1.0.zip klog_submitted.py \\
        -B host:9092 export run orders --to hdfs:///exports/orders

Shipped as a file by itself, which finds klog in the zip, or where it is installed.
"""

from __future__ import annotations

import sys


def main() -> int:
    """The exit code, which says to Spark whether the application has failed."""
    from klog.cli.root import run

    sys.argv[0] = "klog"
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
