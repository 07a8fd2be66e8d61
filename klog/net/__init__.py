"""Sockets on the asyncio loop: the broker's listener and connections, and the client's channel."""
