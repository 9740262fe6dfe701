"""Does everything of a release but the publishing: ``make release-rehearsal``.

1. Builds the sdist, a plain wheel from it, and a compiled wheel for each interpreter of ``--compiled``.
2. Checks the description and the files, as a package index does.
3. Serves them as a package index on a loopback port. Other packages come from the index that pip is configured for.
4. Installs the package by its name into an empty environment for each interpreter. There it runs the demo, the command
   line, README's test, and a program that mypy and pyright have checked; README's other programs, which need a broker,
   are compiled.

Python 3.14 and 3.15, where this machine has none, are those of the image that ``tests/real/pythons/build`` makes.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
NEWEST = ("3.15", "3.14", "3.13", "3.12", "3.11")

TYPED = """
from aiokafka_lite import Consumer, EmbeddedCluster, Producer, RecordMetadata

async def main() -> RecordMetadata:
    async with EmbeddedCluster() as cluster, Producer(cluster.bootstrap_servers) as producer:
        async with Consumer(cluster.bootstrap_servers, topics=["orders"]) as consumer:
            metadata = await producer.send("orders", b"value", key=b"key")
            async for record in consumer:
                size: int = len(record.value or b"")
                print(size, metadata.offset)
                break
        return metadata
"""
"""A program that is checked with ``mypy --strict`` and pyright against the installed package, and then run."""

IMAGE = "aiokafka-lite/pythons:testing"
IN_IMAGE = ("3.15", "3.14")

Python = tuple[str | Path, ...]
"""The command that starts an interpreter; its last part is the interpreter, on this machine or in the image."""


class Rehearsal:
    """Builds into ``dist``, and installs into environments below ``scratch``."""

    def __init__(self, scratch: Path, dist: Path) -> None:
        self.scratch = scratch
        self.dist = dist

    def step(self, what: str, command: Sequence[str | Path], **environment: str) -> str:
        """Run a command and return its output. A failure prints the output and ends the rehearsal."""
        start = time.monotonic()
        result = subprocess.run(
            [str(part) for part in command],
            cwd=self.scratch,
            env=clean_environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if result.returncode != 0:
            sys.exit(f"FAILED: {what}\n{result.stdout[-4000:]}")
        print(f"{time.monotonic() - start:6.1f} s  {what}", flush=True)
        return result.stdout

    def build(self, pythons: Mapping[str, Python], compiled: Sequence[str]) -> None:
        """Build the sdist and the wheels. The wheels are built from the sdist."""
        tools = self.environment("tools", (sys.executable,))
        self.step("install build and twine", [*pip(tools), "build", "twine"])
        build = [*tools, "-m", "build", "--outdir", self.dist]
        self.step("sdist", [*build, "--sdist", ROOT])
        (sdist,) = self.dist.glob("*.tar.gz")
        source = self.scratch / "source"
        source.mkdir()
        shutil.unpack_archive(sdist, source)
        (source,) = source.iterdir()
        self.step("plain wheel", [*build, "--wheel", source], AIOKAFKA_LITE_PURE="1")
        for version in compiled:
            builder = self.environment(f"build-{version}", pythons[version])
            self.step(f"install build for Python {version}", [*pip(builder), "build"])
            command = [*builder, "-m", "build", "--outdir", self.dist, "--wheel", source]
            self.step(f"compiled wheel for Python {version}", command, AIOKAFKA_LITE_PURE="0")
        self.step("twine check --strict", [*tools, "-m", "twine", "check", "--strict", *self.dist.iterdir()])

    def environment(self, name: str, python: Python) -> Python:
        """Make a virtual environment. Returns its interpreter."""
        self.step(f"environment {name}", [*python, "-m", "venv", self.scratch / name])
        return (*python[:-1], self.scratch / name / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))

    def try_installation(self, version: str, interpreter: Python, index: str, is_compiled: bool) -> None:
        """Install the package by its name, and use it as a reader of README does."""
        label = f"Python {version}, {'compiled' if is_compiled else 'plain'}"
        python = self.environment(f"user-{version}-{is_compiled}", interpreter)
        kind = ["--only-binary", "aiokafka_lite"]
        tools = ["pytest", "pytest-asyncio", "mypy", "pyright[nodejs]"]
        self.step(
            f"{label}: pip install aiokafka_lite[cli]",
            [*pip(python), *kind, "--extra-index-url", index, "aiokafka_lite[cli]", *tools],
        )
        found = self.step(
            f"{label}: import",
            [*python, "-I", "-c", "import aiokafka_lite as a; print(a.__file__); print(a.compiled.COMPILED)"],
        ).splitlines()
        if not Path(found[0]).is_relative_to(self.scratch) or found[1] != str(is_compiled):
            sys.exit(f"FAILED: {label}: the package is {found}")
        command = Path(python[-1]).parent / "aiokafka-lite"
        self.step(f"{label}: aiokafka-lite --version", [*python[:-1], command, "--version"])
        self.step(f"{label}: the demo", [*python, ROOT / "examples" / "demo.py", "--records", "5000"])
        typed = self.scratch / "typed.py"
        typed.write_text("# pyright: strict\n" + TYPED + "\nimport asyncio\nasyncio.run(main())\n")
        self.step(f"{label}: mypy --strict", [*python, "-m", "mypy", "--strict", typed])
        self.step(f"{label}: pyright", [*python, "-m", "pyright", "--pythonpath", python[-1], typed])
        self.step(f"{label}: the checked program", [*python, typed])
        self.try_readme(label, python)

    def try_readme(self, label: str, python: Python) -> None:
        """Run README's test with pytest, and compile the programs that need a broker on localhost."""
        blocks = re.findall(
            r"^```py(?:thon)?\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
        )
        tests = [block for block in blocks if "embedded_kafka" in block]
        assert tests, "README has a test with the embedded broker"
        for number, block in enumerate(blocks):
            program = self.scratch / f"test_readme_{number}.py"
            program.write_text(block, encoding="utf-8")
            if block in tests:
                options = ["-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", "-c", os.devnull]
                self.step(
                    f"{label}: README's test", [*python, "-m", "pytest", *options, "--rootdir", self.scratch, program]
                )
            else:
                self.step(f"{label}: README's program {number + 1} compiles", [*python, "-m", "py_compile", program])


def pip(python: Python) -> list[str | Path]:
    return [*python, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", "install"]


def clean_environment(added: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which only what is installed can be imported."""
    dropped = ("PYTHONPATH", "AIOKAFKA_LITE_PURE", "VIRTUAL_ENV", "PYTHONSAFEPATH", "PYTHONHOME")
    return {name: value for name, value in os.environ.items() if name not in dropped} | dict(added)


@contextlib.contextmanager
def serving(dist: Path) -> Iterator[str]:
    """Serve the files as a package index (PEP 503) on a loopback port. Yields its address."""
    page = dist.parent / "index" / "simple" / "aiokafka-lite"
    page.mkdir(parents=True)
    for file in dist.iterdir():
        shutil.copy(file, page)
    links = "".join(f'<a href="{file.name}">{file.name}</a>\n' for file in sorted(dist.iterdir()))
    (page / "index.html").write_text(f"<!doctype html>\n{links}")
    handler = functools.partial(QuietHandler, directory=str(page.parent.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple/"
        finally:
            server.shutdown()
            thread.join()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Log nothing: the steps are the output."""


def interpreters() -> dict[str, Python]:
    """Return the supported interpreters of this machine: their versions, and where they are."""
    found: dict[str, Python] = {}
    for version in NEWEST:
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
        for candidate in (f"python{version}", *map(str, pyenv.glob(f"{version}.*/bin/python"))):
            check = f"import ensurepip, sys; sys.exit('%d.%d' % sys.version_info[:2] != {version!r})"
            with contextlib.suppress(OSError):
                if subprocess.run([candidate, "-c", check], capture_output=True).returncode == 0:
                    found[version] = (candidate,)
                    break
    return found


def in_container(version: str, scratch: Path) -> Python:
    """Return the command of an interpreter of the image, for programs in the repository and in ``scratch``.

    Both have the same path in the container, whose processes have the user and the niceness of this one.
    """
    certificates = "/etc/ssl/certs/ca-certificates.crt"
    packages = (ROOT / ".venv" / "pip-cache").resolve()  # of tests/real/pythons/run: a package is built once
    packages.mkdir(parents=True, exist_ok=True)
    volumes = [f"{scratch}:{scratch}", f"{ROOT}:{ROOT}:ro", f"{packages}:/packages", "/etc/ssl/certs:/etc/ssl/certs:ro"]
    settings = {
        "HOME": str(scratch),
        "PIP_CACHE_DIR": "/packages",
        "PIP_CERT": certificates,
        "NODE_EXTRA_CA_CERTS": certificates,
    }
    return (
        *("docker", "run", "--rm", "--init", "--network=host", f"--user={os.getuid()}:{os.getgid()}"),
        *(f"--volume={volume}" for volume in volumes),
        *(f"--env={name}={value}" for name, value in settings.items()),
        *("--env=AIOKAFKA_LITE_PURE", f"--workdir={scratch}", IMAGE),
        *("nice", "-n", str(os.nice(0)), f"python{version}"),
    )


def has_image() -> bool:
    """Return whether the image of newer interpreters is here, after an attempt to build it."""
    build = ROOT / "tests" / "real" / "pythons" / "build"
    with contextlib.suppress(OSError):
        return subprocess.run([build], capture_output=True).returncode == 0
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--versions", help="interpreters to install on (all that are found)")
    parser.add_argument("--compiled", help="interpreters to build a compiled wheel for (the oldest of them)")
    parser.add_argument("--dist", type=Path, help="keep the sdist and the wheels here")
    options = parser.parse_args()
    pythons = interpreters()
    wanted = None if options.versions is None else f"{options.versions},{options.compiled or ''}".split(",")
    in_image = [version for version in IN_IMAGE if version not in pythons and (wanted is None or version in wanted)]
    if in_image and not has_image():
        in_image = []
    names = [version for version in NEWEST if version in pythons or version in in_image]
    versions = names if options.versions is None else options.versions.split(",")
    compiled = versions[-1:] if options.compiled is None else [part for part in options.compiled.split(",") if part]
    if missing := [version for version in {*versions, *compiled} if version not in names]:
        sys.exit(f"not found: Python {', '.join(sorted(missing))}; this machine has {', '.join(names)}")
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as directory:
        scratch = Path(directory).resolve()
        pythons |= {version: in_container(version, scratch) for version in in_image}
        dist = scratch / "dist"
        dist.mkdir()
        rehearsal = Rehearsal(scratch, dist)
        rehearsal.build(pythons, compiled)
        with serving(dist) as index:
            for version in versions:
                rehearsal.try_installation(version, pythons[version], index, version in compiled)
        if options.dist is not None:
            shutil.copytree(dist, options.dist, dirs_exist_ok=True)
    for version in NEWEST:
        if version not in versions:
            print(f"NOT TRIED: Python {version}")
    print(f"the release can be built and installed: Python {', '.join(versions)}; compiled: {', '.join(compiled)}")


if __name__ == "__main__":
    main()
