"""klog as one zip file, for Python processes on other machines: ``--py-files``, or an artifact of Connect."""

from __future__ import annotations

import zipfile
from pathlib import Path

from klog import __version__

HOME = Path(__file__).resolve().parents[3]
"""Where this process has found klog."""

PACKAGES = ("klog", "pyspark_klog")

_TIME = (2020, 1, 1, 0, 0, 0)
"""Of every file in it, so that the same klog makes the same zip."""


def make_zip(folder: Path) -> Path:
    """A new ``klog-<version>.zip`` in ``folder``, without the packages that klog needs."""
    target = folder / f"klog-{__version__}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for path in sorted((HOME / package).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    about = zipfile.ZipInfo(str(path.relative_to(HOME)), _TIME)
                    about.compress_type = zipfile.ZIP_DEFLATED
                    about.external_attr = 0o644 << 16
                    archive.writestr(about, path.read_bytes())
    return target
