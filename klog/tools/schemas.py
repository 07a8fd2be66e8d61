"""Messages by the schemas of the registry, for programs: what `klog produce --schema` and `klog tail --schema` do."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from klog.client.raw_fetch import RawCluster
from klog.client.security_files import read_security
from klog.client.servers import Servers
from klog.errors import InvalidRecord
from klog.tools.message_decoder import MessageDecoder
from klog.tools.message_encoder import MessageEncoder


class Schemas:
    """Encodes and decodes values of messages, as JSON has them. Any number of threads.

    >>> with klog.Schemas(bootstrap_servers="127.0.0.1:9092") as schemas:
    ...     producer.send("orders", schemas.encode({"id": 7}, "orders-value"))
    ...     schemas.decode(message.value)

    Schemas are read from the brokers once, the newest of a subject too.
    """

    def __init__(self, *, bootstrap_servers: str | Sequence[str], **settings: Any) -> None:
        """``settings``: a producer's of security, such as ``sasl_username``. CannotConnect, UsageError."""
        servers = bootstrap_servers if isinstance(bootstrap_servers, str) else ",".join(bootstrap_servers)
        given = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self._cluster = RawCluster(Servers(servers, read_security(given, "settings of Schemas")))
        self._lock = threading.Lock()
        self._encoders: dict[int | str, MessageEncoder] = {}
        self._decoder = MessageDecoder("avro", self._cluster.schema)

    def encode(self, value: Any, schema: int | str) -> bytes:
        """The message's value by the schema of an id, or the newest of a subject.

        UsageError names the field that does not fit. SchemaNotFound, SubjectNotFound, InvalidSchema.
        """
        with self._lock:
            encoder = self._encoders.get(schema)
            if encoder is None:
                found = schema if isinstance(schema, int) else self._cluster.newest_schema_id(schema)
                encoder = self._encoders[schema] = MessageEncoder(found, self._cluster.schema(found))
            return encoder.value(value)

    def decode(self, message: bytes | None) -> Any:
        """What a message's value says by the schema whose id it begins with; None of null.

        InvalidRecord says why it cannot be decoded; the message is what it was.
        """
        with self._lock:
            found = self._decoder.of(message)
        if "value_error" in found:
            raise InvalidRecord(found["value_error"])
        return found.get("value")

    def close(self) -> None:
        """End the connections; may be called twice."""
        self._cluster.close()

    def __enter__(self) -> Schemas:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
