"""Datums of Avro, of many messages at once, as Arrow columns."""
