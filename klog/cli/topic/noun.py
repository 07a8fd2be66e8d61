"""The noun that the verbs of topics hang in."""

from klog.cli.command import Noun

topic = Noun("topic", "Topics and partitions: create, describe, alter, delete, elect, verify.")
