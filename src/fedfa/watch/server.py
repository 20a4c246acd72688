"""Access control and answers: only GET, only on this machine, only with the token in the address."""

import hmac
import ipaddress
import json
import logging
import os
import secrets
import socket
import sys
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from fedfa.errors import ConfigError, in_a_line, require
from fedfa.report.templates import asset, plotly, templates
from fedfa.watch.metrics import CONTENT_TYPE, metrics
from fedfa.watch.runs import Runs
from fedfa.watch.view import view

logger = logging.getLogger("fedfa")

TOKEN = "FEDFA_WATCH_TOKEN"
"""The environment variable for a constant token, which Prometheus needs."""
SHORTEST_TOKEN = 16

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Watch:
    """Serves the page of a folder's runs; ``address`` opens it. Nothing is ever written."""

    def __init__(self, folder: Path, host: str = "127.0.0.1", port: int = 0, token: str = "") -> None:
        require(_is_loopback(host), f"--host {host}: must be this machine's own, such as 127.0.0.1; from elsewhere, "
                "use an SSH tunnel")  # fmt: skip
        require(0 <= port <= 65535, f"--port {port}: must be between 0 (any free one) and 65535")
        token = token or os.environ.get(TOKEN, "") or secrets.token_urlsafe(24)
        plain = all(c.isascii() and (c.isalnum() or c in "-_") for c in token)
        require(
            len(token) >= SHORTEST_TOKEN and plain,
            f"{TOKEN}: must have {SHORTEST_TOKEN} or more letters, digits, - or _",
        )
        require(not folder.exists() or folder.is_dir(), f"{folder}: is a file; give a run's folder")
        runs = Runs(folder)

        class Handler(_Handler):
            pass

        Handler.runs, Handler.token, Handler.failing = runs, token.encode(), {}
        kind = type("Server", (_Server,), {"address_family": socket.AF_INET6 if ":" in host else socket.AF_INET})
        try:
            self.server = kind((host, port), Handler)
        except OSError as error:
            raise ConfigError(
                f"--port {port}: cannot be used ({error.strerror}); choose another, or 0 for any"
            ) from error
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self.server.server_address[1]}/{token}/"

    def serve(self) -> None:
        """Answer until ``close`` is called or Ctrl-C."""
        try:
            self.server.serve_forever(poll_interval=0.2)
        finally:
            self.server.server_close()

    def close(self) -> None:
        self.server.shutdown()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error while an answer was sent. A browser that disconnects meanwhile is no error."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            logger.error("fedfa watch: an answer could not be sent", exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    runs: Runs
    token: bytes
    failing: dict[str, str]
    """What cannot be shown now, and why."""

    def do_GET(self) -> None:
        if not _is_loopback(_without_port(self.headers.get("Host", ""))):
            return self._send(HTTPStatus.FORBIDDEN, b"the Host header does not name this machine\n")
        path, _, query = self.path.partition("?")
        _, token, *rest = f"{path}/".split("/", 2)
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self.token):
            return self._send(HTTPStatus.NOT_FOUND, b"not found; use the whole address that 'fedfa watch' printed\n")
        what = rest[0].removesuffix("/")
        try:
            answer = self._answer(what, query)
        except Exception as error:
            if self.failing.get(what) != (said := in_a_line(error)):  # the page asks again every second
                logger.exception("fedfa watch: %s cannot be shown (%s)", what or "the page", said)
            self.failing[what] = said
            return self._send(HTTPStatus.INTERNAL_SERVER_ERROR, b"an error; the terminal of 'fedfa watch' says which\n")
        self.failing.pop(what, None)
        if answer is None:
            return self._send(HTTPStatus.NOT_FOUND, b"not found\n")
        text, kind = answer
        return self._send(HTTPStatus.OK, text.encode(), kind)

    def _answer(self, what: str, query: str) -> tuple[str, str] | None:
        """Text and type of the requested resource; None if it does not exist."""
        match what:
            case "":
                return _page(), "text/html; charset=utf-8"
            case "data.json":
                run = parse_qs(query).get("run", [""])[0]
                shown = view(run, self.runs.look(), str(self.runs.folder), self.runs.left_out)
                return json.dumps(shown, allow_nan=False, separators=(",", ":")), "application/json"
            case "metrics":
                return metrics(self.runs.look()), CONTENT_TYPE
            case "watch.js":
                return _script(), "text/javascript; charset=utf-8"
            case "plotly.js":
                return plotly(), "text/javascript; charset=utf-8"
            case _:
                return None

    def __getattr__(self, name: str) -> Any:
        """Every request other than GET."""
        if name.startswith("do_"):
            return self._refuse
        raise AttributeError(name)

    def _refuse(self) -> None:
        self.close_connection = True  # the request's body is not read
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET\n", Allow="GET")

    def _send(self, status: HTTPStatus, body: bytes, kind: str = "text/plain; charset=utf-8", **more: str) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": kind, "Content-Length": str(len(body))} | _HEADERS | more).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        return "fedfa"

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: the page sends a request every second."""


def _is_loopback(host: str) -> bool:
    """Whether a name or an address certainly means this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _without_port(host: str) -> str:
    """The name or address in a Host header."""
    return host.removeprefix("[").partition("]")[0] if host.startswith("[") else host.partition(":")[0]


@cache
def _page() -> str:
    return templates("fedfa.watch").get_template("watch.html").render()


@cache
def _script() -> str:
    return asset("figures.js") + asset("watch.js", "fedfa.watch")
