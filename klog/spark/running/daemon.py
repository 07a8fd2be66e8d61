"""What Spark runs on this machine to fork its Python workers: pyspark's own daemon, out of files that are compiled.

Spark puts zips of the sources of pyspark and py4j in front of all else, and Python compiles what it takes from there at
every start: a third of a second of each process. They have the same modules as the package that they lie in.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def without_zips(path: list[str], home: str | None) -> list[str]:
    """``path`` without the zips of ``home`` (SPARK_HOME), and with the folder that the package pyspark is in.

    As it was where ``home`` is not such a package: Spark is installed there by itself then, and its zips are what fits.
    """
    if not home or not (Path(home) / "__init__.py").is_file() or Path(home).name != "pyspark":
        return path
    folder = Path(home).resolve()
    kept = [one for one in path if Path(one).resolve().parent != folder / "python" / "lib"]
    return kept if len(kept) == len(path) else [*kept, str(folder.parent)]


if __name__ == "__main__":
    sys.path[:] = without_zips(sys.path, os.environ.get("SPARK_HOME"))
    from pyspark import daemon

    daemon.manager()
