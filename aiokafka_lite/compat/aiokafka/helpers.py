"""``create_ssl_context``: a TLS context from files."""

from __future__ import annotations

import ssl


def create_ssl_context(
    *,
    cafile: str | None = None,
    capath: str | None = None,
    cadata: str | bytes | None = None,
    certfile: str | None = None,
    keyfile: str | None = None,
    password: str | None = None,
    crlfile: str | None = None,
) -> ssl.SSLContext:
    """Create a TLS context that trusts these or the system's CAs, and presents this client certificate."""
    context = ssl.create_default_context(cafile=cafile, capath=capath, cadata=cadata)
    if crlfile is not None:
        context.load_verify_locations(crlfile)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if certfile is not None:
        context.load_cert_chain(certfile, keyfile, password)
    return context
