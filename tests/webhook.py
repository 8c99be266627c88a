"""A webhook's server on this host, which answers as a test wants."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from collections.abc import Callable
from typing import Any

from tests import patience
from tests.ports import free_port

SECRET = "T0psecret"


class Server:
    """A server that records what it gets."""

    def __init__(self, address: str = "127.0.0.1", say: Callable[[str], object] = lambda _: None) -> None:
        """`say` is called with the body of each message."""
        self.answers: list[tuple[int, dict[str, str]]] = []
        """The next answers, code and headers; then 200."""
        self.got: list[Any] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.hold = threading.Event()
        """Answers come once this is set."""
        self.hold.set()
        recorder = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                recorder.paths.append(self.path)
                recorder.headers.append(dict(self.headers))
                code, headers = recorder.answers.pop(0) if recorder.answers else (200, {})
                recorder.got.append(json.loads(body))
                say(body.decode())
                recorder.hold.wait(patience.SECONDS)
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.port = free_port()
        self._server = http.server.ThreadingHTTPServer((address, self.port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """A URL whose path is a secret."""
        return f"http://127.0.0.1:{self.port}/{SECRET}"

    def close(self) -> None:
        """Refuse connections from now on."""
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def main() -> None:
    """Serve every host, until the end of standard input; print the port, then each message."""

    def say(line: str) -> None:
        print(line, flush=True)

    say(str(Server("0.0.0.0", say).port))
    sys.stdin.read()


if __name__ == "__main__":
    main()
