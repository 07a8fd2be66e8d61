"""The commands of the figure: what is run of each part, and how large all of it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

TOPIC: Final = "pages"
COUNTS: Final = "pages-per-10s"
GROUP: Final = "news-feed"
OFFLINE: Final = "offline"
TABLE: Final = "table"
FORM: Final = f"{TOPIC}:json=page string"
STREAM: Final = (
    f"SELECT unix_millis(window.start) AS start, page, count(*) AS views FROM {TOPIC}"
    " GROUP BY window(timestamp, '10 seconds'), page"
)
QUERY: Final = (
    f"SELECT page, count(*) AS views FROM {TOPIC} WHERE timestamp > now() - interval 1 minute"
    " GROUP BY page ORDER BY views DESC"
)
QUERY_ROWS_MAX: Final = 20
SPARK: Final = ("--master", "local[1]")
LINGER_MS: Final = 250
"""A front end sends its messages in batches (paper, section 5), those of so long."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large it is. ``rate``: messages a second of all front ends together."""

    live: int = 2
    brokers: int = 3
    front_ends: int = 2
    """Of each live cluster."""
    partitions: int = 4
    rate: float = 500.0
    table_every_s: float = 1.5
    query_every_s: float = 120.0

    def at_rate(self, rate: float) -> Size:
        return replace(self, rate=rate)


SMALL: Final = Size(1, 1, 1, 2, 200.0)


def create_topic(bootstrap: str, topic: str, partitions: int) -> list[str]:
    return ["-B", bootstrap, "topic", "create", topic, "-p", str(partitions)]


def front_end(address: str, host: str) -> list[str]:
    """Stamped; its lines are KEY|VALUE."""
    given = (f"audit.host={host}", "audit.publish.ms=5000", f"linger.ms={LINGER_MS}")
    settings = [word for one in given for word in ("-X", one)]
    return ["-B", address, "produce", TOPIC, "--audit", "-K", "|", *settings]


def near_line(bootstrap: str) -> list[str]:
    """One line for each message."""
    return ["-B", bootstrap, "tail", TOPIC, "-G", GROUP, "-o", "start", "-f", "%p %o\n"]


def online_query(bootstrap: str) -> list[str]:
    return ["-B", bootstrap, "sql", QUERY, "--from", FORM, "-c", str(QUERY_ROWS_MAX), *SPARK, "-o", "jsonl"]


def mirror(sources: Sequence[str], target: str) -> list[str]:
    words = [word for one in sources for word in ("--source", one)]
    return ["mirror", *words, "--target", target, "--topic", TOPIC, "-o", "jsonl"]


def loader(bootstrap: str, root: Path, every_s: float) -> list[str]:
    follow = ["--follow", "--every", f"{every_s * 1000:.0f}ms"]
    return ["-B", bootstrap, "export", "run", TOPIC, "--to", str(root), *follow, *SPARK, "-o", "jsonl"]


def stream(bootstrap: str, state: Path) -> list[str]:
    query = ["-e", STREAM, "--from", FORM, "--to", f"topic:{COUNTS}", "--key", "page", "--late", "10 seconds"]
    how = ["--every", "5 seconds", "--name", COUNTS, "--state", str(state)]
    return ["-B", bootstrap, "stream", "run", *query, *how, *SPARK, "-o", "jsonl"]
