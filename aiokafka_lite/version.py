"""The version of this package, in its own module so that every layer can import it."""

from __future__ import annotations

VERSION = "0.1.0"
