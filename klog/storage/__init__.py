"""Segment files and the small files beside them. Knows neither asyncio nor the server."""
