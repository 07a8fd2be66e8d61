"""``klog topic``: topics and their partitions.

The verbs are listed in the order in which these modules are loaded.
"""

from klog.cli.topic import verbs

# isort: split
from klog.cli.topic import elect, verify

# isort: split
from klog.cli.topic.noun import topic

__all__ = ["elect", "topic", "verbs", "verify"]
