"""CRC-32C, the checksum of a record batch, by the package ``crc32c``.

The ``__init__`` of that package imports argparse, mmap and importlib.metadata, which takes as long as the import of
half of this client. So this module loads only the package's extension module, or the package if there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import cast

Checksum = Callable[..., int]
"""``crc32c(data, value=0)``: the checksum of ``data``, continued from the checksum ``value``."""


def _extension() -> Checksum | None:
    package = find_spec("crc32c")
    within = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", within) if within is not None else None
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Checksum | None", getattr(module, "crc32c", None))


def _package() -> Checksum:
    from crc32c import crc32c

    return cast(Checksum, crc32c)


crc32c: Checksum = _extension() or _package()
