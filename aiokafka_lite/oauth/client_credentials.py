"""Tokens by the grant ``client_credentials`` of OAuth 2, with a client secret (KIP-768) or an assertion (KIP-1258)."""

from __future__ import annotations

import base64
from collections.abc import Callable
from urllib.parse import quote, urlencode

from .. import disclosure
from ..errors import ConfigurationError, ConnectionLost
from ..settings.security import Secret
from .endpoint import CachedToken, TokenEndpoint, check_endpoint, lifetime_of, tls_context_of

_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class ClientCredentials(CachedToken):
    """Requests tokens from the token endpoint of an identity provider, by the grant ``client_credentials`` of OAuth 2.

    The client authenticates with ``client_secret``, or with ``assertion``: a function that returns a signed JWT, such
    as ``SignedAssertion`` or ``TokenFromFile`` (RFC 7523, KIP-1258).

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
        client_secret: str | None = None,
        *,
        assertion: Callable[[], str] | None = None,
        scope: str | None = None,
        cafile: str | None = None,
        timeout: float = 10.0,
    ) -> None:
        super().__init__()
        check_endpoint(url)
        if not isinstance(client_id, str) or not client_id:
            raise ConfigurationError("client_id must be a string that is not empty")
        if assertion is None and (not isinstance(client_secret, str) or not client_secret):
            raise ConfigurationError("client_secret must be a string that is not empty")
        if assertion is not None and client_secret is not None:
            raise ConfigurationError("client_secret and assertion cannot be combined: the assertion is in its place")
        if assertion is not None and not callable(assertion):
            raise ConfigurationError(
                f"assertion must be a function that returns a JWT, got {disclosure.kind(assertion)}"
            )
        self._url = url
        self._named = disclosure.url(url)
        self._client_id = client_id
        self._assertion = assertion
        self._credentials = Secret(f"{quote(client_id, safe='')}:{quote(client_secret or '', safe='')}")
        self._secret = Secret(client_secret or "")
        self._form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
        context = tls_context_of(cafile) if url.lower().startswith("https:") else None
        self._endpoint = TokenEndpoint(self._named, context=context, timeout=timeout)

    def __repr__(self) -> str:
        return f"<ClientCredentials {self._named}>"

    def _request(self) -> tuple[str, float]:
        form, headers = self._form, {}
        if self._assertion is None:
            login = base64.b64encode(self._credentials.encode()).decode()
            headers["Authorization"] = f"Basic {login}"
            secrets = [self._secret, login]
        else:
            assertion = self._assertion()
            if not isinstance(assertion, str):
                raise ConnectionLost(f"assertion must return a str, got {type(assertion).__name__}", sent=False)
            secrets = [assertion]
            signed = assertion.encode()  # the text behind a Secret
            form = {
                **form,
                "client_id": self._client_id,
                "client_assertion_type": _ASSERTION_TYPE,
                "client_assertion": signed.decode(),
            }
        answer = self._endpoint.request(self._url, urlencode(form).encode(), headers, secrets)
        return self._endpoint.token(answer), lifetime_of(answer.get("expires_in", 0))
