"""What a handler can tell its connection besides an answer."""

from __future__ import annotations


class CloseConnection(Exception):
    """The connection must end without an answer."""
