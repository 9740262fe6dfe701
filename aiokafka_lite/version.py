"""The version, in a module of its own so that every layer may read it and none imports another for it."""

from __future__ import annotations

VERSION = "0.1.0"
