"""A temporary directory is deleted by the process that made it, and by no other."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from aiokafka_lite.own_directory import OwnDirectory


def test_its_process_deletes_it_with_all_files() -> None:
    directory = OwnDirectory("test")
    (directory.path / "file").touch()
    directory.delete()
    directory.delete()
    assert not directory.path.exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_of_fork_does_not_delete_the_directory_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    directory = OwnDirectory("test")
    try:
        monkeypatch.setattr(os, "getpid", lambda: -1)  # as in a child
        directory.delete()
        assert directory.path.exists()
    finally:
        monkeypatch.undo()
        Path(directory.path).rmdir()


def test_the_end_of_a_process_deletes_it(tmp_path: Path) -> None:
    import subprocess

    program = "import os; from aiokafka_lite.own_directory import OwnDirectory; print(OwnDirectory('test').path)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert not Path(done.stdout.strip()).exists()
