"""Builds klog. With KLOG_COMPILE=1 in the environment some pure modules are compiled too, from the same source.

A compiled module lies beside its source in what is installed, and Python takes it in its place; where it is not there,
the source runs. It needs a C compiler, and mypy in the environment that builds (`pip install --no-build-isolation`).
Never in place: a compiled module would go on hiding a source that is changed later.
"""

import os
import sys

from setuptools import setup

COMPILED = (
    "klog/protocol/codec.py",
    "klog/protocol/fetch.py",
    "klog/protocol/produce.py",
    "klog/record/batch.py",
    "klog/record/admission.py",
    "klog/record/records.py",
)
"""Bytes in, objects out: nothing in them is made a subclass of, or held weakly, which compiled classes do not allow."""

IN_PLACE = {"editable_wheel", "develop", "--inplace", "-i"}

if os.environ.get("KLOG_COMPILE") == "1":
    if IN_PLACE & set(sys.argv):
        sys.exit("klog: KLOG_COMPILE=1 compiles for an installation only; an editable one would hide later changes")
    from mypyc.build import mypycify

    setup(ext_modules=mypycify(list(COMPILED), opt_level="3"))
else:
    setup()
