"""The JSON files of a data directory: each has a format and a checksum, and a write leaves the old file or the new one.

A document is ``{"written_by": "aiokafka_lite", "format": 1, "crc32": ..., "content": ...}``. The format proves that the
file is ours, and the checksum that nobody changed it: one flipped bit in a file of offsets or access rules would
otherwise be believed.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any
from zlib import crc32

from ..errors import ConfigurationError

FORMAT = 1
"""The format of data directories that this version writes. It grows if older versions cannot read the files."""
WRITER = "aiokafka_lite"
TEMPORARY = ".tmp"


class UnreadableDocument(ConfigurationError):
    """A file that the system refuses to read, or that a newer version wrote. Its content may be whole."""


class DamagedDocument(UnreadableDocument):
    """A file that has not the content that was written."""


def write_document(path: Path, content: object, *, is_private: bool = False, is_flushed: bool = True) -> None:
    """Write a file so that a crash leaves the old one or the new one. Only its owner reads it if it ``is_private``.

    Without ``is_flushed`` this holds for a crash of the process, and not for one of the machine. Raises OSError. Then
    the file is usually the old one, but it may be the new one if the disk fails at the very end.
    """
    text = json.dumps(content)
    document = f'{{"written_by": "{WRITER}", "format": {FORMAT}, "crc32": {crc32(text.encode())}, "content": {text}}}'
    temporary = path.with_suffix(TEMPORARY)
    mode = 0o600 if is_private else 0o666
    try:
        with open(temporary, "w", opener=lambda name, flags: os.open(name, flags, mode), encoding="utf-8") as file:
            file.write(document)
            file.flush()
            if is_flushed:
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()  # a full disk needs the room
        raise
    if is_flushed:
        flush_directory(path.parent)


def read_document(path: Path) -> Any:
    """Read the content; None if there is no file. Raises UnreadableDocument, whose text names the file but no cure."""
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableDocument(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        raise DamagedDocument(f"{path} is damaged: it is not JSON") from None
    if not isinstance(document, dict) or document.get("written_by") != WRITER or "content" not in document:
        raise DamagedDocument(f"{path} is damaged, or not a file of a data directory")
    written_in = document.get("format")
    if isinstance(written_in, int) and written_in > FORMAT:
        raise UnreadableDocument(
            f"{path} has format {written_in}, and this version reads format {FORMAT}: "
            "a newer version of aiokafka_lite wrote it. Use that version"
        )
    content = document["content"]
    if written_in != FORMAT or document.get("crc32") != crc32(json.dumps(content).encode()):
        raise DamagedDocument(f"{path} is damaged: its checksum is wrong")
    return content


def flush_directory(path: Path) -> None:
    """Wait until the disk has the names of new files."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unused_name(path: Path, suffix: str) -> Path:
    """Return a name beside ``path`` that no file has yet: the name with a suffix, which a number may follow."""
    stem = path.name[: 250 - len(suffix)]  # file systems allow 255 bytes
    name, number = path.with_name(stem + suffix), 2
    while os.path.lexists(name):
        name, number = path.with_name(f"{stem}{suffix}.{number}"), number + 1
    return name
