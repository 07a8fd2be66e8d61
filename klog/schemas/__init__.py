"""The registry of schemas: Avro, what may follow what, and the faces of it: over HTTP, and over brokers."""
