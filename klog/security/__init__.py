"""Who is there, and who may what: decided without I/O."""
