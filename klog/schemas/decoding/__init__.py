"""Many Avro datums at once as Arrow columns, of the schema that a reader chooses."""
