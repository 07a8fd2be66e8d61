"""The Kafka protocol at the border: keys, frames, headers and bodies. Pure: bytes in, typed objects out."""
