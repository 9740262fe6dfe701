"""Modules that only an extra of this package installs. They are imported on first use, never with the package."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from .errors import ConfigurationError


def extra(module: str, name: str = "arrow") -> ModuleType:
    """Import a module that the extra ``name`` installs. If it is missing, ConfigurationError names what to install."""
    loaded = sys.modules.get(module)  # a single dict lookup, because encoders call this for every batch
    if loaded is not None:
        return loaded
    try:
        return import_module(module)
    except ImportError as error:
        missing = error.name or module
        raise ConfigurationError(f"{missing} is not installed; run: pip install 'aiokafka_lite[{name}]'") from error
