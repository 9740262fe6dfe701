"""Refuses requests that do not come from the page in the browser of its user.

A policy of the browser forbids any script that is not in ``static``.
"""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any

from ..extras import extra

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
MOST_BODY = 2 * 1024 * 1024
"""The most bytes of a request, for example of a record to write."""


class Guard:
    """Answers only the browser that has the token, at the right host, and changes only from the page itself.

    Other users of the machine do not have the token. Another page in the same browser cannot read answers, but could
    send requests. The cookie does not go with those of another site (``SameSite``). But a port is no part of a site, so
    it goes with those of every other server on this machine: the browser says in ``Sec-Fetch-Site`` and ``Origin``
    where a request comes from, and only this page may ask. A name that resolves to this machine is refused too.
    """

    def __init__(self, app: ASGIApp, *, token: str, hosts: frozenset[str]) -> None:
        self._app = app
        self._token = token
        self._hosts = hosts

    def __repr__(self) -> str:
        return f"<Guard {', '.join(sorted(self._hosts))}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        responses = extra("starlette.responses", "ui")
        cookie_name = f"aiokafka_lite_{host.rpartition(':')[2]}"  # cookies do not distinguish ports
        query = scope["query_string"].decode("latin-1")
        own = f"http://{host}"
        if host not in self._hosts:
            refusal = responses.PlainTextResponse("this page answers only at its own address", 403)
        elif headers.get("sec-fetch-site", "none") not in ("none", "same-origin") or headers.get("origin", own) != own:
            refusal = responses.PlainTextResponse("another page asks; type or paste the address of this one", 403)
        elif scope["path"] == "/" and query.startswith("token=") and self._is_token(query.removeprefix("token=")):
            refusal = responses.RedirectResponse("/", 303)
            refusal.set_cookie(cookie_name, self._token, httponly=True, samesite="strict")
        elif not self._is_token(_cookie(headers.get("cookie", ""), cookie_name)):
            refusal = responses.PlainTextResponse("open the address that the command has printed: it has a token", 403)
        elif scope["method"] != "GET" and headers.get("origin") != own:
            refusal = responses.PlainTextResponse("changes come only from the page itself", 403)
        elif scope["method"] not in ("GET", "HEAD", "POST") or int(headers.get("content-length") or 0) > MOST_BODY:
            refusal = responses.PlainTextResponse("the request is too large, or of another kind", 413)
        else:
            await self._app(scope, _limited(receive) if scope["method"] == "POST" else receive, _with_headers(send))
            return
        await refusal(scope, receive, _with_headers(send))

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._token.encode())


def _cookie(header: str, name: str) -> str:
    try:
        morsel = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if morsel is None else morsel.value


def _limited(receive: Receive) -> Receive:
    """Refuse a body whose size no header has told, when too much of it has come."""
    size = 0
    too_large = extra("starlette.exceptions", "ui").HTTPException

    async def receive_some() -> Any:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MOST_BODY:
            raise too_large(413, "the request is too large")
        return message

    return receive_some


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Any) -> None:
        if message["type"] == "http.response.start":
            own = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
            message["headers"] = [*message["headers"], *own]
        await send(message)

    return send_with_headers
