"""Builds klog. With KLOG_COMPILE=1 in the environment the path of a message is compiled too, from the same source.

A compiled module lies beside its source in what is installed, and Python takes it in its place; where it is not there,
the source runs. It needs a C compiler, and mypy in the environment that builds (`pip install --no-build-isolation`).
Never in place: a compiled module would go on hiding a source that is changed later.
"""

import os
import sys

from setuptools import setup

COMPILED = (
    "klog/names.py",
    "klog/net/connection.py",
    "klog/net/memory_pool.py",
    "klog/net/shared.py",
    "klog/net/tls.py",
    "klog/protocol/codec.py",
    "klog/protocol/fetch.py",
    "klog/protocol/produce.py",
    "klog/record/admission.py",
    "klog/record/batch.py",
    "klog/record/records.py",
    "klog/replication/batch_order.py",
    "klog/replication/isr.py",
    "klog/replication/led_partition.py",
    "klog/server/dispatch.py",
    "klog/server/handlers/fetch.py",
    "klog/server/handlers/produce.py",
    "klog/server/purgatory.py",
    "klog/server/replicas/fetchers.py",
    "klog/server/replicas/replica_session.py",
    "klog/server/throttling.py",
    "klog/storage/accounting.py",
    "klog/storage/epochs.py",
    "klog/storage/file_pool.py",
    "klog/storage/flusher.py",
    "klog/storage/log.py",
    "klog/storage/log_end.py",
    "klog/storage/log_reader.py",
    "klog/storage/log_state.py",
    "klog/storage/lookup.py",
    "klog/storage/producers.py",
    "klog/storage/segment.py",
)
"""The path of a message. A class of theirs is neither held weakly nor has subclasses in other modules, which compiled
classes do not allow."""

IN_PLACE = {"editable_wheel", "develop", "--inplace", "-i"}

if os.environ.get("KLOG_COMPILE") == "1":
    if IN_PLACE & set(sys.argv):
        sys.exit("klog: KLOG_COMPILE=1 compiles for an installation only; an editable one would hide later changes")
    from mypyc.build import mypycify

    setup(ext_modules=mypycify(list(COMPILED), opt_level="3"))
else:
    setup()
