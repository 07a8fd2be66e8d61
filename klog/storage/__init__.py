"""Segment files and what is kept beside them. Knows neither asyncio nor the server."""
