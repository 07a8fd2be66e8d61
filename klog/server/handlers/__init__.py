"""One file an API key. Importing this package fills the dispatch table."""

from klog.server.handlers import (
    api_versions,
    count_messages,
    describe_self,
    fetch,
    find_message,
    init_producer_id,
    list_offsets,
    locate_message,
    metadata,
    offset_for_leader_epoch,
    produce,
    stop_broker,
)

__all__ = [
    "api_versions",
    "count_messages",
    "describe_self",
    "fetch",
    "find_message",
    "init_producer_id",
    "list_offsets",
    "locate_message",
    "metadata",
    "offset_for_leader_epoch",
    "produce",
    "stop_broker",
]
