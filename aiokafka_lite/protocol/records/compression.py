"""Compress and decompress the records of a batch: the registry of the codecs in ``codecs/``.

``Compression`` names the codecs. A module in ``codecs/`` has the same name, and is imported on first use.
lz4 and zstd come with the package; snappy requires cramjam (``pip install aiokafka_lite[snappy]``).
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from importlib import import_module

from ...errors import ConfigurationError
from ...types import Compression
from .codecs import Buffer, Codec, joining

DEFAULT_MAX_DECOMPRESSED = 128 << 20
"""The maximum size of a batch after decompression, in bytes."""


@cache
def codec_of(compression: Compression) -> Codec:
    """Return the codec: its functions, its levels, and the versions of Produce and Fetch that may carry it."""
    if compression is Compression.NONE:
        return Codec(lambda data, level: bytes(data), lambda data, max_size: iter((bytes(data),)))
    module = import_module(f"{__package__}.codecs.{compression.name.lower()}")
    codec: Codec = module.CODEC
    return codec


def check_level(compression: Compression, level: int | None) -> None:
    """Raise ConfigurationError unless ``level`` is None (the codec's default) or a level of the codec."""
    if level is None:
        return
    name, levels = compression.name.lower(), codec_of(compression).levels
    if levels is None:
        raise ConfigurationError(f"compression_level must be None with compression={name!r}, got {level!r}")
    if isinstance(level, bool) or not isinstance(level, int) or level not in levels:
        allowed = f"a whole number from {levels.start} to {levels.stop - 1} for {name}"
        raise ConfigurationError(f"compression_level must be {allowed}, got {level!r}")


def check_available(compression: Compression) -> None:
    """Raise ConfigurationError if the codec requires a package that is not installed."""
    check = codec_of(compression).check_available
    if check is not None:
        check()


def compress(compression: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress ``data`` for a record batch of format v2; ``level`` None is the codec's default.

    Raises ConfigurationError for a level that the codec does not have, and for snappy if cramjam is not installed.
    """
    check_level(compression, level)
    return codec_of(compression).compress(data, level)


def decompress(compression: Compression, data: Buffer, max_size: int = DEFAULT_MAX_DECOMPRESSED) -> bytes:
    """Decompress ``data``. Raises CorruptRecord if it is malformed, cut off, or exceeds ``max_size`` bytes.

    Raises ConfigurationError for snappy if cramjam is not installed.
    """
    steps = decompressing(compression, data, max_size)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        decompressed: bytes = end.value
        return decompressed


def decompressing(
    compression: Compression, data: Buffer, max_size: int = DEFAULT_MAX_DECOMPRESSED
) -> Generator[None, None, bytes]:
    """Do the same as ``decompress`` in steps of about a mebibyte. Yields between the steps, and returns all bytes."""
    return joining(compression.name.lower(), codec_of(compression).pieces(memoryview(data), max_size), max_size)
