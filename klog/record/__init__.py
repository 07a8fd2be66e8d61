"""RecordBatch v2: its header, its records, its codecs. Bytes in, values out: no files, no sockets, no clock."""
