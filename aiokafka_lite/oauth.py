"""Token providers for OAUTHBEARER: by OIDC client credentials (KIP-768), from a file, and for Amazon MSK.

A provider is a function without arguments that returns a token; ``sasl_oauth_token_provider`` takes any such function.
The providers here are not async: the client calls them in a thread, once for each login of each connection.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import ssl
import threading
import time
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from urllib.parse import quote, urlencode, urlsplit

from . import disclosure
from .errors import AuthenticationError, ConfigurationError, ConnectionLost, harmless
from .extras import extra
from .settings.security import Secret

__all__ = ["AwsMskIam", "ClientCredentials", "TokenFromFile"]

_LARGEST_ANSWER = 1 << 20
_LONGEST_LIFETIME = 366 * 86_400
"""The longest lifetime in seconds. A token with a longer one is used once, like a token without a lifetime."""
_KEPT = 0.8
"""The fraction of a token's lifetime in which further logins use the same token."""


class ClientCredentials:
    """Requests tokens from the token endpoint of an identity provider, by the grant ``client_credentials`` of OAuth 2.

    A token is used for all logins during 80 % of its lifetime. ``cafile`` is a PEM file with the authorities to trust
    for ``url``, by default the authorities of the system; ``timeout`` is in seconds. Redirects are not followed,
    because they would send the secret to another host.

    A call raises AuthenticationError if the endpoint refuses the credentials. It raises ConnectionLost for any other
    failure, and the client tries again. The constructor raises ConfigurationError.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        client_secret: str,
        *,
        scope: str | None = None,
        cafile: str | None = None,
        timeout: float = 10.0,
    ) -> None:
        _check_endpoint(url)
        for name, value in (("client_id", client_id), ("client_secret", client_secret)):
            if not isinstance(value, str) or not value:
                raise ConfigurationError(f"{name} must be a string that is not empty")
        self._url = url
        self._named = disclosure.url(url)  # for errors
        self._credentials = Secret(f"{quote(client_id, safe='')}:{quote(client_secret, safe='')}")
        self._form = urlencode({"grant_type": "client_credentials", **({"scope": scope} if scope else {})}).encode()
        self._context = _context(cafile) if url.lower().startswith("https:") else None
        self._timeout = timeout
        self._lock = threading.Lock()  # one request at a time: connections log in at the same time
        self._token = ""
        self._usable_until = 0.0

    def __repr__(self) -> str:
        return f"<ClientCredentials {self._named}>"

    def __call__(self) -> str:
        with self._lock:
            if not self._token or time.monotonic() >= self._usable_until:
                self._token, lifetime = self._request()
                self._usable_until = time.monotonic() + lifetime * _KEPT
            return self._token

    def _request(self) -> tuple[str, float]:
        """Request a new token. Returns it with its lifetime in seconds."""
        from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
        from urllib.error import HTTPError
        from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

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
        basic = base64.b64encode(self._credentials.encode()).decode()
        request = Request(self._url, self._form, {"Authorization": f"Basic {basic}", "Accept": "application/json"})
        # The timeout of a socket is for each piece that arrives: an endpoint could send one byte from time to time.
        timer = threading.Timer(self._timeout, end)
        timer.daemon = True
        try:
            with build_opener(Stay, Http, Https).open(request, timeout=self._timeout) as answer:
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
            raise self._refusal(status, content)
        return self._read(content)

    def _lost(self, is_late: bool, error: Exception | None = None) -> ConnectionLost:
        reason = f"the answer did not end within {self._timeout:g} s" if is_late else error
        return ConnectionLost(f"cannot get a token from {self._named}: {reason}", sent=False)

    def _read(self, content: bytes) -> tuple[str, float]:
        answer = _json(content)
        token, lifetime = answer.get("access_token"), answer.get("expires_in", 0)
        if not isinstance(token, str) or not token or isinstance(lifetime, bool):
            raise ConnectionLost(f"{self._named} sent no access_token", sent=False)
        # JSON numbers may be NaN, infinite, or too large for a float.
        usable = lifetime if isinstance(lifetime, int | float) and 0 < lifetime < _LONGEST_LIFETIME else 0
        return Secret(token), float(usable)

    def _refusal(self, status: int, content: bytes) -> AuthenticationError | ConnectionLost:
        """Return the error for an HTTP status other than success. Only 429 and 5xx may be temporary."""
        answer = _json(content)
        reasons = [str(answer[name]) for name in ("error", "error_description") if answer.get(name)]
        text = f"{self._named} refused to issue a token: {harmless(': '.join(reasons) or f'HTTP status {status}', 200)}"
        if status == 429 or status >= 500:
            return ConnectionLost(text, sent=False)
        return AuthenticationError(text)


def _check_endpoint(url: object) -> None:
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


def _context(cafile: object) -> ssl.SSLContext:
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


class TokenFromFile:
    """Reads the token from a file at each login, for a process that renews the file, as Kubernetes does.

    A call raises ConnectionLost if the file cannot be read or is empty, and the client tries again.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)

    def __repr__(self) -> str:
        return f"<TokenFromFile {disclosure.path(self._path)}>"

    def __call__(self) -> str:
        reason = ""
        try:
            with open(self._path, encoding="utf-8") as file:
                token = file.read().strip()
        except OSError as error:
            reason = error.strerror or type(error).__name__
        except ValueError:  # not UTF-8, or a NUL in the path
            reason = "it is not a text in UTF-8"
        if reason:
            raise ConnectionLost(f"cannot read the token in {disclosure.path(self._path)}: {reason}", sent=False)
        if not token:
            raise ConnectionLost(f"the file {disclosure.path(self._path)} has no token", sent=False)
        return Secret(token)


class AwsMskIam:
    """Signs tokens for Amazon MSK with IAM, by the credentials that AWS's SDK finds. Needs the extra ``aws``.

    ``region`` is the region of the cluster, such as ``"eu-central-1"``. The constructor raises ConfigurationError if
    the extra is not installed.
    """

    def __init__(self, region: str) -> None:
        self._region = region
        self._signer = extra("aws_msk_iam_sasl_signer.MSKAuthTokenProvider", "aws")  # a module, despite its name

    def __repr__(self) -> str:
        return f"<AwsMskIam {self._region!r}>"

    def __call__(self) -> str:
        token, _ = self._signer.generate_auth_token(self._region)
        return Secret(token)


_NAME = re.compile(r"[a-z_]{1,40}(?:\.[a-z_]{1,40}){0,6}(?::[A-Za-z_]{1,40})?")
"""A dotted name without digits. A token has digits, or capital letters before a colon."""


def imported_provider(setting: str, path: str) -> object:
    """Import the function ``module:function``, which a property names. Raises ConfigurationError."""
    module, colon, attribute = path.partition(":")
    # A token may be given as the name. It is quoted if the first part of it is a module.
    is_identifier = all(part.isidentifier() for part in re.split("[.:]", path))
    is_name = _NAME.fullmatch(path) is not None or (is_identifier and _is_module(module.partition(".")[0]))
    source = f"{setting}={path!r}" if is_name else f"{setting}, {disclosure.kind(path)} that is not shown"
    if not (module and colon and attribute):
        excerpt = repr(path) if is_name else disclosure.kind(path)
        raise ConfigurationError(f"{setting} must be module:function, got {excerpt}")
    try:
        provider: object = import_module(module)
        for name in attribute.split("."):
            provider = getattr(provider, name)
    except (ImportError, AttributeError, ValueError) as error:
        reason = str(error) if is_name else "there is no such module"
    except Exception as error:  # noqa: BLE001 - the import runs the module, and the text of its error may contain a token
        reason = f"it raised {type(error).__name__}"
    else:
        if not callable(provider):
            excerpt = repr(path) if is_name else disclosure.kind(path)
            raise ConfigurationError(f"{setting} must be the name of a function, got {excerpt}")
        return provider
    raise ConfigurationError(f"cannot import {source}: {reason}")


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
