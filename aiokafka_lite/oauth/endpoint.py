"""Requests to a token endpoint by HTTP, and a token that further logins use while it is valid."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from .. import disclosure
from ..errors import AuthenticationError, ConfigurationError, ConnectionLost, harmless
from ..settings.security import Secret

_LARGEST_ANSWER = 1 << 20
_LONGEST_LIFETIME = 366 * 86_400
"""The longest lifetime in seconds. A token with a longer one is used once, like a token without a lifetime."""
_KEPT = 0.8
"""The fraction of a token's lifetime in which further logins use the same token."""


class CachedToken:
    """A token provider that uses a token for all logins during 80 % of its lifetime."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # one request at a time: connections log in at the same time
        self._token = ""
        self._usable_until = 0.0

    def __call__(self) -> str:
        with self._lock:
            if not self._token or time.monotonic() >= self._usable_until:
                token, lifetime = self._request()
                # JSON numbers may be NaN, infinite, or too large for a float.
                usable = float(lifetime) if 0 < lifetime < _LONGEST_LIFETIME else 0.0
                self._token, self._usable_until = Secret(token), time.monotonic() + usable * _KEPT
            return self._token

    def _request(self) -> tuple[str, float]:
        """Request a new token. Returns it with its lifetime in seconds."""
        raise NotImplementedError


class TokenEndpoint:
    """Sends requests to one host within ``timeout`` seconds each. ``name`` is what errors call it.

    Redirects are not followed, because they would send a secret to another host. With ``uses_proxy``, the proxies of
    the environment apply.
    """

    def __init__(
        self, name: str, *, context: ssl.SSLContext | None = None, timeout: float = 10.0, uses_proxy: bool = True
    ) -> None:
        self._named = name
        self._context = context
        self._timeout = timeout
        self._uses_proxy = uses_proxy

    def request(
        self, url: str, form: bytes | None, headers: Mapping[str, str], secrets: Iterable[str] = ()
    ) -> dict[str, object]:
        """Send a form by POST, or ask by GET if there is none. Return the JSON object of the answer.

        ``secrets`` are those of the request: an error hides them, because an endpoint may repeat what it refuses.
        """
        from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
        from urllib.error import HTTPError
        from urllib.request import (
            HTTPHandler,
            HTTPRedirectHandler,
            HTTPSHandler,
            ProxyHandler,
            Request,
            build_opener,
        )

        sockets: list[socket.socket] = []
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            for connected_socket in sockets:
                with suppress(OSError):  # the socket is closed already
                    socket.socket.shutdown(connected_socket, socket.SHUT_RDWR)

        def connected(connection: HTTPConnection) -> None:
            sockets.append(connection.sock)
            timer.start()  # after connecting, because each address of the endpoint has its own time to connect

        class Plain(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                connected(self)

        class Secure(HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                connected(self)

        class Http(HTTPHandler):
            def http_open(self, request: Request) -> HTTPResponse:
                return self.do_open(Plain, request)

        class Https(HTTPSHandler):
            def https_open(self, request: Request) -> HTTPResponse:
                return self.do_open(Secure, request, context=context)

        class Stay(HTTPRedirectHandler):
            def redirect_request(self, *args: object) -> None:
                return None

        context = self._context
        request = Request(url, form, {**headers, "Accept": "application/json"})
        direct = [] if self._uses_proxy else [ProxyHandler({})]
        # The timeout of a socket is for each piece that arrives: an endpoint could send one byte from time to time.
        timer = threading.Timer(self._timeout, end)
        timer.daemon = True
        try:
            with build_opener(Stay, Http, Https, *direct).open(request, timeout=self._timeout) as answer:
                status, content = 200, answer.read(_LARGEST_ANSWER)
        except HTTPError as error:
            with error:
                status, content = error.code, error.read(_LARGEST_ANSWER)
        except (OSError, HTTPException) as error:
            raise self._lost(is_late.is_set(), error) from error
        finally:
            timer.cancel()
        if is_late.is_set():
            raise self._lost(True)
        if status != 200:
            raise self._refusal(status, content, disclosure.SecretTexts(*secrets))
        return _json(content)

    def _lost(self, is_late: bool, error: Exception | None = None) -> ConnectionLost:
        reason = f"the answer did not end within {self._timeout:g} s" if is_late else error
        return ConnectionLost(f"cannot get a token from {self._named}: {reason}", sent=False)

    def token(self, answer: Mapping[str, object]) -> str:
        """Return ``access_token`` of an answer. Raises ConnectionLost if there is none."""
        token = answer.get("access_token")
        if not isinstance(token, str) or not token:
            raise ConnectionLost(f"{self._named} sent no access_token", sent=False)
        return Secret(token)

    def _refusal(
        self, status: int, content: bytes, secrets: disclosure.SecretTexts
    ) -> AuthenticationError | ConnectionLost:
        """Return the error for an HTTP status other than success. Only 429 and 5xx may be temporary."""
        answer = _json(content)
        reasons = [str(answer[name]) for name in ("error", "error_description") if answer.get(name)]
        reason = secrets.hide(": ".join(reasons)) or f"HTTP status {status}"
        text = f"{self._named} refused to issue a token: {harmless(reason, 200)}"
        if status == 429 or status >= 500:
            return ConnectionLost(text, sent=False)
        return AuthenticationError(text)


def lifetime_of(value: object) -> float:
    """Return the seconds of ``expires_in``; 0.0 for anything but a number."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def check_endpoint(url: object) -> None:
    """Raise ConfigurationError unless this is the address of a token endpoint, with nothing that errors could quote."""
    what = "the https:// address of a token endpoint"
    if not isinstance(url, str):
        raise ConfigurationError(f"url must be {what}, got {disclosure.kind(url)}")
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("https", "http") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        has_user = "@" in parts.netloc
    except ValueError:
        is_valid, has_user = False, False
    if has_user:
        raise ConfigurationError("url must have no user and password; pass client_id and client_secret")
    # http.client quotes an address with spaces or control characters.
    if not is_valid or re.search(r"[^\x21-\x7e]", url):
        raise ConfigurationError(f"url must be {what}, got {disclosure.url(url)}")


def tls_context_of(cafile: object) -> ssl.SSLContext:
    if cafile is not None and not isinstance(cafile, str | os.PathLike):
        raise ConfigurationError(f"cafile must be the path of a PEM file, got {disclosure.kind(cafile)}")
    try:
        return ssl.create_default_context(cafile=cafile)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it has no valid PEM certificates"
    raise ConfigurationError(f"cannot read cafile={disclosure.path(cafile)}: {reason}")


def _json(content: bytes) -> dict[str, object]:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}
