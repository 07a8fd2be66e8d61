"""A server that speaks S3: moto's, in this process or, by `start`, in one of its own.

delta-rs holds Python's lock while it waits for an answer: a server in the same process could not give it.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from tests.broker_fixture import ROOT

BUCKET = "exports"


def settings(url: str) -> dict[str, str]:
    """For the environment of who is to use the server."""
    named = {"AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1"}
    return {**named, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}


class S3:
    """moto's server. While ``heeds`` is False it does as servers do that never heard of conditions."""

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # takes seconds
        from werkzeug.serving import make_server

        self.heeds = True
        self.loses_answers = False
        app = DomainDispatcherApplication(create_backend_app)

        def asked(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
            if not self.heeds:
                environ.pop("HTTP_IF_NONE_MATCH", None)
            if self.loses_answers and environ["REQUEST_METHOD"] == "PUT":
                self.loses_answers = False
                list(app(environ, lambda *about: lambda data: None))
                start_response("503 Slow Down", [("Content-Length", "0")])
                return [b""]
            if environ["REQUEST_METHOD"] != "PUT":
                return app(environ, start_response)
            with one_at_a_time:  # moto looks first and writes then; a store that heeds conditions does both in one step
                return app(environ, start_response)

        one_at_a_time = threading.Lock()
        self._server = make_server("127.0.0.1", 0, asked, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.port}"
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port)
        connection.request("PUT", f"/{BUCKET}")
        assert connection.getresponse().status == 200
        connection.close()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def start() -> tuple[subprocess.Popen[str], str]:
    """A process that serves until its stdin is closed, and its URL."""
    command = [sys.executable, "-m", "tests.spark.s3_server"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=ROOT, text=True, **pipes)  # type: ignore[call-overload]
    return process, process.stdout.readline().strip()


def main() -> None:
    server = S3()
    print(server.url, flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
