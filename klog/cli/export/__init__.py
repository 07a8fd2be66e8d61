"""``klog export``: messages to files with Spark, and what is done with such an export.

The verbs are listed in the order in which these modules are loaded.
"""

from klog.cli.export import run

# isort: split
from klog.cli.export import status

# isort: split
from klog.cli.export import maintenance

# isort: split
from klog.cli.export import submit

# isort: split
from klog.cli.export.noun import export

__all__ = ["export", "maintenance", "run", "status", "submit"]
