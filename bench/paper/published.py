"""What the paper says of its own experiment (section 5, figures 4 and 5), to stand beside what is measured here.

Numbers that the text gives are exact; of ActiveMQ and RabbitMQ it gives ratios, so theirs are bounds.
"""

from __future__ import annotations

SOURCE = 'J. Kreps, N. Narkhede, J. Rao, "Kafka: a distributed messaging system for log processing", NetDB 2011'

MESSAGES = 10_000_000
VALUE_BYTES = 200

PRODUCED = {1: 50_000, 50: 400_000}
"""Kafka's messages a second, by batch size."""
PRODUCED_OVER_RABBITMQ = 2
"""At a batch of 1 at least; ActiveMQ is orders of magnitude behind."""

CONSUMED = 22_000
CONSUMED_OVER_QUEUES = 4
"""More than so many times what ActiveMQ and RabbitMQ did."""

OVERHEAD_BYTES = {"kafka": 9, "activemq": 144}
PULL_BYTES = 200_000
"""What one of the paper's pull requests brought at most, or 1,000 messages."""

MACHINES = "two machines of 8 cores at 2 GHz, 16 GB of memory and 6 disks in RAID 10, joined by 1 Gb/s"
VERSIONS = "ActiveMQ 5.4 with KahaDB and RabbitMQ 2.4"
