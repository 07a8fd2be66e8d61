"""The page over HTTP on 127.0.0.1, for a browser on this machine. It answers GET and HEAD of ``/`` and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from klog.net.http_server import HttpServer

HOST: Final = "127.0.0.1"
GETS: Final = ("GET", "HEAD")


def serve_page(page: Callable[[], str], port: int) -> HttpServer:
    """Serve what ``page`` gives, which is asked from threads of the server's; port 0 is a free one. PortInUse."""

    def application(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/" or environ["REQUEST_METHOD"] not in GETS:
            start_response("404 Not Found", [("Content-Type", "text/plain"), ("Content-Length", "0")])
            return []
        data = page().encode("utf-8", "replace")
        headers = [("Content-Type", "text/html; charset=utf-8"), ("Content-Length", str(len(data)))]
        start_response("200 OK", [*headers, ("Cache-Control", "no-store")])
        return [data] if environ["REQUEST_METHOD"] == "GET" else []

    return HttpServer.open(application, HOST, port, what="the page", flag="--port PORT")
