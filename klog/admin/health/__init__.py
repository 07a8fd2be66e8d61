"""The health of a cluster: ``snapshot`` asks once, ``rules`` turn it into ``findings``, without I/O."""
