"""UpdateMetadata (klog's own, 10012): the cluster state from which this broker answers Metadata, and topics' settings.

Behaviour
    Only the controller may send it: a request of an earlier controller, or for an earlier incarnation of this broker,
    is refused and changes nothing. Changed settings of a topic apply to its logs at once.
"""

from __future__ import annotations

from klog.config import LogConfig
from klog.names import TopicPartition
from klog.protocol.apis import ApiKey
from klog.server.dispatch import Answer, Request, handles
from klog.server.image import apply
from klog.server.parts import Parts


@handles(ApiKey.UPDATE_METADATA, 0, 0, of_brokers=True, may_refuse=True)
async def handle(request: Request, parts: Parts) -> Answer:
    update, image = request.entity, parts.image
    await parts.authority.check(update.controller_epoch, update.incarnation)
    brokers_before = image.brokers
    for name in apply(image, update):
        config = LogConfig.of(parts.config.of_topic(name), image.topics[name].overrides)
        for partition in image.topics[name].partitions:
            there = parts.log_dirs.log(TopicPartition(name, partition))
            if there is not None:
                there.reconfigure(config)
    if image.brokers != brokers_before:
        parts.former_brokers.note(brokers_before, image.brokers)
        parts.replicas.brokers_changed()
    parts.replicas.fetchers.take_rates(update)
    if update.slots:
        parts.groups.cache.slots_changed()
    image.known.set()
    parts.registry_copies.changed()
    return {}
