"""URLs that name a file (RFC 8089), as Kafka's settings of OAUTHBEARER have them."""

from __future__ import annotations

from urllib.parse import quote, unquote, urlsplit


def path_of_url(url: str) -> str | None:
    """The absolute path in ``file:///PATH``; None for anything else."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    path = unquote(parts.path)
    is_file = parts.scheme == "file" and parts.netloc in ("", "localhost") and not (parts.query or parts.fragment)
    return path if is_file and path.startswith("/") and "\0" not in path else None


def file_url(path: str) -> str:
    """``path``: absolute."""
    return f"file://{quote(path)}"
