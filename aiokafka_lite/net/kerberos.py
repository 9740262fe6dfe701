"""Kerberos tickets for logins by GSSAPI, with the library ``gssapi`` (extra ``gssapi``).

The first message of a login needs a ticket for the broker. The library reads the ticket cache or the keytab, and asks
the KDC. If the KDC does not answer, this call blocks for up to half a minute. So this part runs in a thread. All later
messages are computed in the event loop, in less than a millisecond.

Tickets of a keytab are in a cache in memory, under the names of the keytab and the principal. After half of a ticket's
lifetime, the library requests a new ticket. Tickets of a user are in the user's ticket cache, which another program
renews.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from ..errors import AuthenticationError, ConnectionLost, KafkaError
from ..extras import extra
from ..protocol.sasl import GssapiExchange
from ..settings.client import ClientConfig

T = TypeVar("T")

DEFAULT_SERVICE = "kafka"

_THREADS = 2
"""The number of threads for logins. They are not the threads of the event loop, because a login whose caller was
cancelled may still wait for the KDC in its thread. Logins with the same keytab wait for one another."""

_RETRIABLE = frozenset((-1765328355, -1765328230, -1765328228))
"""KRB5KDC_ERR_SVC_UNAVAILABLE, KRB5_REALM_UNKNOWN and KRB5_KDC_UNREACH. A realm may also be unknown because DNS, which
may name its KDC, does not answer. After any other error, a retry does not help: an operator has to act."""

_fillings: dict[tuple[int, str], threading.Lock] = {}
"""A lock for each cache in memory. All clients of the process with the same keytab and principal use the same cache.
The library first initializes a cache, and then stores a ticket in it. A login between these two steps would fail with
KRB5_CC_NOTFOUND. The key contains the process id: a lock that is held during a fork stays locked in the child."""

_KINIT = "run kinit, or set sasl_kerberos_keytab"
_NEW_KEYTAB = "export the keytab again, because the keys of the principal have changed"
_BROKER = (
    "check sasl_kerberos_service_name, and that the KDC has a principal of the host name in the broker's "
    "advertised.listeners, or in DNS"
)
_NO_STORES = "sasl_kerberos_keytab needs MIT Kerberos; run kinit instead, or install MIT Kerberos"

_ADVICE = {
    -1765328378: "check sasl_kerberos_principal and the realm",  # KRB5KDC_ERR_C_PRINCIPAL_UNKNOWN
    -1765328377: _BROKER,  # KRB5KDC_ERR_S_PRINCIPAL_UNKNOWN
    -1765328360: _NEW_KEYTAB,  # KRB5KDC_ERR_PREAUTH_FAILED
    -1765328353: _NEW_KEYTAB,  # KRB5KRB_AP_ERR_BAD_INTEGRITY
    -1765328352: _KINIT,  # KRB5KRB_AP_ERR_TKT_EXPIRED
    -1765328347: "set the clocks of this machine, the broker and the KDC",  # KRB5KRB_AP_ERR_SKEW
    -1765328230: "name the KDC of the realm in krb5.conf, or check DNS",  # KRB5_REALM_UNKNOWN
    -1765328228: "check the KDC of the realm in krb5.conf, and the network",
    -1765328189: _KINIT,  # KRB5_FCC_NOFILE
}
_NO_CREDENTIALS = (7 << 16, 11 << 16)
"""GSS_S_NO_CRED and GSS_S_CREDENTIALS_EXPIRED."""


class KerberosContext:
    """The client's half of a security context of ``gssapi``."""

    def __init__(self, context: Any, explained: Callable[[Exception], KafkaError], error: type[Exception]) -> None:
        self._context = context
        self._explained = explained
        self._error = error

    @property
    def complete(self) -> bool:
        return self._checked(lambda: bool(self._context.complete))  # raises the error that a step has deferred

    def step(self, message: bytes) -> bytes:
        return self._checked(lambda: self._context.step(message) or b"")

    def unwrap(self, message: bytes) -> bytes:
        return self._checked(lambda: bytes(self._context.unwrap(message).message))

    def wrap(self, content: bytes) -> bytes:
        return self._checked(lambda: bytes(self._context.wrap(content, False).message))

    def _checked(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except self._error as error:
            raise self._explained(error) from None


class Kerberos:
    """The Kerberos settings of a client, which all its connections share.

    Raises ConfigurationError if ``gssapi`` is not installed.
    """

    def __init__(self, service_name: str | None, keytab: str | None, principal: str | None) -> None:
        self._gssapi: Any = extra("gssapi", "gssapi")
        self._service_name = service_name or DEFAULT_SERVICE
        self._keytab = keytab
        self._principal = principal
        self._cache = f"MEMORY:aiokafka-lite {principal or ''} {keytab}"
        self._filling: AbstractContextManager[object] = (
            nullcontext() if keytab is None else _fillings.setdefault((os.getpid(), self._cache), threading.Lock())
        )
        self._threads = ThreadPoolExecutor(_THREADS, "kerberos")

    @classmethod
    def of(cls, config: ClientConfig) -> Kerberos:
        return cls(config.sasl_kerberos_service_name, config.sasl_kerberos_keytab, config.sasl_kerberos_principal)

    def __repr__(self) -> str:
        return f"<Kerberos {self._service_name} {self._principal or ''}>"

    async def exchange(self, host: str) -> GssapiExchange:
        """Begin an exchange with the broker on this host, with a ticket for it.

        Raises ConnectionLost if the KDC cannot be found or reached, or is busy: a later attempt may succeed. Raises
        AuthenticationError for any other error of Kerberos.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._begin, host)

    def _begin(self, host: str) -> GssapiExchange:
        gssapi = self._gssapi
        service = f"{self._service_name}@{host}"
        flags = gssapi.RequirementFlag

        def explained(error: Exception) -> KafkaError:
            return self._explained(error, f"Kerberos does not accept the message of {service}")

        try:
            with self._filling:
                context = gssapi.SecurityContext(
                    name=gssapi.Name(service, gssapi.NameType.hostbased_service),
                    creds=self._credentials(),
                    mech=gssapi.MechType.kerberos,
                    flags=flags.mutual_authentication | flags.integrity,
                    usage="initiate",
                )
                first = context.step() or b""
        except gssapi.exceptions.GSSError as error:
            raise self._explained(error, f"Kerberos has no ticket for {service}") from None
        return GssapiExchange(KerberosContext(context, explained, gssapi.exceptions.GSSError), first)

    def _credentials(self) -> Any:
        gssapi = self._gssapi
        name = None if self._principal is None else gssapi.Name(self._principal, gssapi.NameType.kerberos_principal)
        store = None
        if self._keytab is not None:
            # The setting is a path. Without a type, Kerberos takes the part of the path before a colon for the type.
            store = {"client_keytab": f"FILE:{self._keytab}", "ccache": self._cache}
        try:
            return gssapi.Credentials(name=name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=store)
        except NotImplementedError:
            raise AuthenticationError(_NO_STORES) from None

    def _explained(self, error: Any, failure: str) -> KafkaError:
        """Return the error for an exception of gssapi: what failed, the text of Kerberos, and what to do."""
        # Codes of Kerberos are signed, and the library returns them as unsigned numbers of 32 bits.
        minor = error.min_code - 2**32 if error.min_code >= 2**31 else error.min_code
        texts = error.get_all_statuses(error.min_code, False) if error.min_code else []
        texts = texts or error.get_all_statuses(error.maj_code, True)
        advice = _ADVICE.get(minor, _KINIT if error.maj_code in _NO_CREDENTIALS else "")
        if advice is _KINIT and self._keytab is not None:
            key = "a key" if self._principal is None else f"a key of {self._principal!r}"
            advice = f"check that the keytab {self._keytab!r} has {key}"
        said = f"{failure}: {'; '.join(texts)}" + (f"; {advice}" if advice else "")
        if minor in _RETRIABLE:
            return ConnectionLost(said, sent=False)
        return AuthenticationError(said)
