"""A temporary directory that its process deletes at its end, and no other process."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path


class OwnDirectory:
    """A new directory. Owner: the process that made it: a child of ``fork`` must not delete the files of its parent."""

    def __init__(self, purpose: str) -> None:
        self.path: Path = Path(tempfile.mkdtemp(prefix=f"aiokafka-lite-{purpose}-"))
        self._process = os.getpid()
        atexit.register(self.delete)

    def __repr__(self) -> str:
        return f"<OwnDirectory {self.path}>"

    def delete(self) -> None:
        """Delete the directory, if this process made it."""
        atexit.unregister(self.delete)
        if os.getpid() == self._process:
            shutil.rmtree(self.path, ignore_errors=True)
