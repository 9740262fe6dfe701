"""Requests to a schema registry over HTTP: the choice of an address, retries, and the meaning of errors.

Rule 1: a lost connection and the statuses 408, 429 and 5xx are retried at the next address, at once. After each round
over all addresses there is a pause. ``timeout`` ends the retries with KafkaTimeout.

Rule 2: all other errors are raised at once. A status other than success, or an answer that is not JSON, is a
SchemaRegistryError, which says what to do. A certificate that is not trusted is an AuthenticationError. If no
address answers in the first round, each is asked once in Kafka's protocol. A Kafka broker is a ConfigurationError.

Rule 3: no error and no log contains a password or a token.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from .. import disclosure
from ..aio import forks, local_ports
from ..aio.deadline import deadline
from ..aio.outages import Outages
from ..aio.retry import Backoff, is_retriable
from ..aio.shared_calls import SharedCalls
from ..arguments import must_be
from ..errors import (
    AuthenticationError,
    ConfigurationError,
    ConnectionLost,
    IllegalStateError,
    KafkaError,
    SchemaRegistryError,
    harmless,
)
from ..extras import extra
from ..settings.security import Secret, TokenProvider
from .wrong_port import is_kafka

logger = logging.getLogger(__name__)

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"

LARGEST_ANSWER = 8 << 20
"""The largest answer in bytes. A list of 100,000 subjects is smaller."""

_LONGEST_QUOTE = 500
_RETRIABLE = {408, 429}
_WRONG_TOKEN = "token must be visible ASCII characters, without spaces and line breaks"
_ADVICE = {
    401: "check username and password, or token",
    403: "grant the user access to the subject",
    404: "register the schema first, or check the name of the subject",
    409: "make the schema compatible with the versions of the subject, or change the level with set_compatibility()",
    422: "correct the schema or the argument",
    40403: "register the schema first, or use the registry that the record was written with",
    42205: "use another registry for writes, or allow them with set_mode('READWRITE')",
}
"""The advice at the end of an error, by the registry's code or by the HTTP status."""


class RegistryHttp:
    """Sends requests to a registry, which may have several addresses. Needs the extra ``schema-registry``.

    Raises ConfigurationError. ``close`` closes the connections. Owned by one event loop, and by the process that sent
    the first request: in a forked process, every call raises IllegalStateError.
    """

    def __init__(
        self,
        url: str | Iterable[str],
        *,
        username: str | None,
        password: str | None,
        token: str | TokenProvider | None,
        ssl_context: ssl.SSLContext | None,
        timeout: float,
        request_timeout: float,
        backoff: tuple[float, float],
        random: Callable[[], float],
    ) -> None:
        self._httpx = extra("httpx", "schema-registry")
        self.urls: list[str]
        self.urls, in_url = _addresses(url)
        if (username is None) != (password is None):
            raise ConfigurationError("username and password are required together")
        self._basic = in_url if username is None or password is None else (username, Secret(password))
        if self._basic is not None and token is not None:
            raise ConfigurationError("token cannot be combined with username and password; pass only one of them")
        if token is not None:
            _check_token(token)
        self._token: TokenProvider | Secret | None = Secret(token) if isinstance(token, str) else token
        if ssl_context is not None and not isinstance(ssl_context, ssl.SSLContext):
            raise ConfigurationError(must_be("ssl_context", "an ssl.SSLContext", ssl_context))
        self._ssl_context = ssl_context
        self._timeout = timeout
        self._request_timeout = request_timeout
        self._backoff = backoff
        self._random = random
        self._outages = Outages()
        self._client: Any = None
        self._closing = SharedCalls("the connections to the schema registry were closed by another call")
        self._is_closed = False
        self._process: int | None = None  # the fork generation of the first request
        self._connections: dict[int, Any] = {}  # the sockets of open connections, by descriptor
        self._preferred = 0  # the address that answered last

    async def close(self) -> None:
        self.check_process()
        self._is_closed = True
        # A shared call, because httpx keeps the other connections open if the close of one of them is cancelled.
        await self._closing.call("close", self._close_client)

    async def _close_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def check_process(self) -> None:
        """Raise IllegalStateError in a forked process, if its parent sent requests."""
        if self._process is not None and self._process != forks.generation:
            raise IllegalStateError(forks.text_of("the schema registry client"))

    def forked(self) -> None:
        """Neither read nor write on the connections: they are the parent's."""
        for connection in self._connections.values():
            forks.detach_connection(connection.fileno())

    def _watch(self, answer: Any) -> None:
        """Remember the connection of an answer of httpx, for ``forked``. Closed ones are dropped."""
        stream = answer.extensions.get("network_stream")
        connection = None if stream is None else stream.get_extra_info("socket")
        if connection is not None and connection.fileno() not in self._connections:
            still_open = (item for item in self._connections.values() if item.fileno() >= 0)
            self._connections = {item.fileno(): item for item in (*still_open, connection)}

    async def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        subject: str | None = None,
        parameters: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request and return the JSON of the answer. ``subject`` is for errors. Raises KafkaError."""
        self.check_process()
        backoff = Backoff(*self._backoff, random=self._random)
        failure: KafkaError | None = None
        is_first_round = True

        def describe() -> str:
            return (
                f"{_named(method, path, subject)} was not answered within timeout={self._timeout:g} s by "
                f"{' or '.join(map(disclosure.url, self.urls))}" + (f": {failure}" if failure is not None else "")
            )

        with deadline(self._timeout, describe):
            while True:
                closed: dict[str, KafkaError] = {}
                for number in range(len(self.urls)):
                    index = (self._preferred + number) % len(self.urls)
                    url = self.urls[index]
                    try:
                        answer = await self._once(url, method, path, body, subject, parameters)
                    except KafkaError as error:
                        if not is_retriable(error):
                            raise
                        failure = error
                        if self._was_closed(error):
                            closed[url] = error
                        self._outages.report(logger, url, error, "the schema registry fails, retrying: %s", error)
                        continue
                    self._preferred = index
                    if self._outages:
                        self._outages.recovered(logger, url, "the schema registry at %s answered", disclosure.url(url))
                    return answer
                if is_first_round:
                    is_first_round = False
                    await _refuse_brokers(closed)
                await asyncio.sleep(backoff.next())

    def _was_closed(self, error: KafkaError) -> bool:
        """Return whether the peer closed or refused the connection. A Kafka broker closes it after an HTTP request."""
        cause = error.__cause__
        return isinstance(cause, self._httpx.RequestError) and not isinstance(cause, self._httpx.TimeoutException)

    async def _once(
        self,
        url: str,
        method: str,
        path: str,
        body: Mapping[str, object] | None,
        subject: str | None,
        parameters: Mapping[str, str] | None,
    ) -> Any:
        """Send one request to one address. ConnectionLost may be retried, any other error must not be."""
        if (address := urlsplit(url)).hostname is not None and address.port is not None:
            local_ports.check(address.hostname, address.port)
        headers = {"Accept": f"{CONTENT_TYPE}, application/json", "Content-Type": CONTENT_TYPE}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {(await _token_of(self._token)).encode().decode()}"
        client = self._open_client()
        content, problem = None, "the answer is not JSON"
        try:
            async with client.stream(method, url + path, json=body, params=parameters, headers=headers) as answer:
                self._watch(answer)
                body_text = await _content(answer)
            content = json.loads(body_text)
        except self._httpx.RequestError as error:
            raise _lost(url, error) from error
        except _UnusableAnswer as error:
            problem = str(error)
        except (ValueError, RecursionError):
            pass
        if self._is_closed:
            raise IllegalStateError("the schema registry client was closed while it waited for an answer")
        if answer.is_success and content is not None:
            return content
        if answer.is_redirect:
            problem = f"it redirects to {_place(answer.headers.get('location', ''))}"
        raise _refusal(url, _named(method, path, subject), subject, answer.status_code, content, problem)

    def _open_client(self) -> Any:
        if self._is_closed:
            raise IllegalStateError("the schema registry client is closed; create a new one")
        if self._client is None:
            self._process = forks.generation
            forks.notify(self)
            is_tls = any(url.startswith("https:") for url in self.urls)
            self._client = self._httpx.AsyncClient(
                # Loading the system's certificates takes tens of milliseconds.
                verify=(self._ssl_context or True) if is_tls else False,
                timeout=self._request_timeout,
                auth=None if self._basic is None else (self._basic[0], self._basic[1].encode()),
            )
        return self._client


def _addresses(url: str | Iterable[str]) -> tuple[list[str], tuple[str, Secret] | None]:
    """Parse the addresses of a registry, and the first user name and password that one of them contains."""
    urls = list(url) if isinstance(url, Iterable) and not isinstance(url, str | Mapping) else [url]
    if not urls:
        raise ConfigurationError("url must be the http:// or https:// address of a schema registry, got none")
    parsed = [_parsed(entry) for entry in urls]
    userinfo = next((user for _, user in parsed if user is not None), None)
    return [address for address, _ in parsed], userinfo


def _parsed(url: object) -> tuple[str, tuple[str, Secret] | None]:
    """Parse an address. Returns it without a slash at its end, and the user name and password that it contains."""
    problem = f"url must be the http:// or https:// address of a schema registry, got {disclosure.url(url)}"
    if not isinstance(url, str):
        raise ConfigurationError(problem)
    parts = None
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # the text of the error may contain a part of the password, so it must not be in the chain
        parts = None
    if parts is None:
        raise ConfigurationError("url must be the address of a schema registry, with a valid host and port")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigurationError(problem if parts.password is None else "url must be an http:// or https:// address")
    host = parts.netloc.rpartition("@")[2]
    userinfo = None
    if parts.username is not None:
        userinfo = (unquote(parts.username), Secret(unquote(parts.password or "")))
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")), userinfo


async def _token_of(token: TokenProvider | Secret) -> Secret:
    """Ask for the token of one request. A synchronous function runs in a thread, because it may block."""
    if isinstance(token, Secret):
        return token
    is_async = inspect.iscoroutinefunction(token) or inspect.iscoroutinefunction(type(token).__call__)
    try:
        result: object = token() if is_async else await asyncio.to_thread(token)
        if inspect.isawaitable(result):
            result = await result
    except KafkaError:
        raise
    except Exception as error:  # the text of the error may contain the token
        raise ConnectionLost(f"the function token failed: it raised {type(error).__name__}", sent=False) from error
    if not isinstance(result, str) or not result:
        raise AuthenticationError(f"the function token must return a string, got {type(result).__name__}")
    if not _is_token(result):
        raise AuthenticationError(_WRONG_TOKEN)
    return Secret(result)


def _check_token(token: object) -> None:
    """Raise ConfigurationError unless this can be the argument ``token``."""
    if not isinstance(token, str) and not callable(token):
        raise ConfigurationError("token must be a string, or a function that returns one")
    if isinstance(token, str) and not _is_token(token):
        raise ConfigurationError(_WRONG_TOKEN)


def _is_token(token: str) -> bool:
    """Return whether a header can carry the token. An error of httpx would quote the whole header (rule 3)."""
    return re.fullmatch(r"[\x21-\x7e]+", token) is not None


def _named(method: str, path: str, subject: str | None) -> str:
    about = f" for subject {subject!r}" if subject is not None else ""
    return f"{method} {harmless(path, _LONGEST_QUOTE)}{about}"


async def _refuse_brokers(closed: Mapping[str, KafkaError]) -> None:
    """Raise ConfigurationError if one of these addresses is a Kafka broker. ``closed`` has the error of each."""
    answers = await asyncio.gather(*map(is_kafka, closed))
    for (url, error), is_broker in zip(closed.items(), answers, strict=True):
        if is_broker:
            raise ConfigurationError(
                f"a Kafka broker answers at {disclosure.url(url)}; url must be the address of a schema registry"
            ) from error


def _lost(url: str, error: BaseException) -> KafkaError:
    """Return the error for a request without an answer."""
    reason: BaseException | None = error
    while reason is not None:
        if isinstance(reason, ssl.SSLCertVerificationError):
            return AuthenticationError(
                f"the certificate of {disclosure.url(url)} is not trusted: {reason.verify_message}; "
                "pass an ssl_context with its CA"
            )
        reason = reason.__cause__ or reason.__context__
    # The errors of httpx for an exceeded time have no text.
    return ConnectionLost(f"{disclosure.url(url)} does not answer: {str(error) or type(error).__name__}", sent=True)


def _place(location: str) -> str:
    """Return the address that an answer redirects to, without the parts that may contain a secret (rule 3)."""
    try:
        parts = urlsplit(location)
    except ValueError:
        return "an address that is not valid"
    return harmless(urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")), _LONGEST_QUOTE)


class _UnusableAnswer(Exception):
    """The content of an answer cannot be read. The message says why."""


async def _content(answer: Any) -> bytes:
    """Read the content of an answer of httpx. Raises _UnusableAnswer if it takes too much memory."""
    if "," in answer.headers.get("content-encoding", ""):
        raise _UnusableAnswer("the answer is compressed more than once")
    content = bytearray()
    async with aclosing(answer.aiter_bytes()) as pieces:
        async for piece in pieces:
            content += piece
            if len(content) > LARGEST_ANSWER:
                raise _UnusableAnswer(f"the answer has more than {LARGEST_ANSWER >> 20} MiB")
    return bytes(content)


def _refusal(url: str, what: str, subject: str | None, status: int, content: object, problem: str) -> KafkaError:
    """Return the error for an answer that is not a success, or whose content has a ``problem``."""
    code, message = status, ""
    if isinstance(content, dict):
        message = harmless(str(content.get("message", "")), _LONGEST_QUOTE)
        error_code = content.get("error_code")
        code = error_code if isinstance(error_code, int) else status
    if status in _RETRIABLE or status >= 500:
        return ConnectionLost(
            f"{disclosure.url(url)} answered {what} with HTTP status {status}: {message or 'no message'}", sent=True
        )
    if status < 400:
        message = problem
    advice = _ADVICE.get(code) or _ADVICE.get(status)
    if advice is None or code == 404:  # a registry has codes of its own: 40401 to 40409
        advice = "check that url is the address of a schema registry"
    return SchemaRegistryError(
        f"{disclosure.url(url)} refused {what}: {message or 'no message'} (HTTP status {status}, code {code}); "
        f"{advice}",
        status=status,
        code=code,
        subject=subject,
    )
