"""The cluster as a client sees it."""


class Cluster:
    """See the next change."""
