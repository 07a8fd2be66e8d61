"""The brokers' side of the group protocol: who is in a group, in which generation, and who reads what."""
