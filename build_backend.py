"""The build backend of this package: setuptools, and mypyc where a compiled build is asked for.

With ``AIOKAFKA_LITE_PURE=0`` in the environment, the modules of ``COMPILED_MODULES`` are compiled ahead of time. The
same files run as plain Python where they are not compiled, and a wheel has both. The rules:

1. A build is plain Python unless ``AIOKAFKA_LITE_PURE=0`` asks for a compiled one: an installation from source takes
   seconds, and needs neither a compiler nor mypy. The wheels of a release are compiled.
2. ``AIOKAFKA_LITE_PURE=0`` fails where this machine cannot compile, so that a release has no plain wheel by accident.
3. mypyc is requested only for a wheel that is compiled. An sdist, an editable install and a plain wheel do without it.
4. Only a wheel is compiled. An editable install is plain Python until ``make build`` compiles in place.
5. mypyc reads no installed package: the generated C is the same with and without build isolation.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import sysconfig
import tempfile
import tomllib
import warnings
from collections.abc import Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, build_meta
from setuptools.build_meta import *  # noqa: F403 - the hooks that stay as they are
from setuptools.errors import BaseError, CompileError

ROOT = Path(__file__).parent

# setuptools warns about every editable installation, and newer releases of pip show that at the first `make demo`.
warnings.filterwarnings("ignore", "Editable installation")

COMPILED_MODULES = (
    "aiokafka_lite/aio/alarms.py",
    "aiokafka_lite/aio/byte_budget.py",
    "aiokafka_lite/aio/deadline.py",
    "aiokafka_lite/blocking/sending.py",
    "aiokafka_lite/consumer/buffer.py",
    "aiokafka_lite/consumer/chunk.py",
    "aiokafka_lite/consumer/partition.py",
    "aiokafka_lite/consumer/reader.py",
    "aiokafka_lite/embedded/log/log.py",
    "aiokafka_lite/embedded/replicas/partition.py",
    "aiokafka_lite/embedded/log/producer_state.py",
    "aiokafka_lite/embedded/replicas/purgatory.py",
    "aiokafka_lite/embedded/replicas/manager.py",
    "aiokafka_lite/embedded/log/transaction_index.py",
    "aiokafka_lite/embedded/log/validator.py",
    "aiokafka_lite/net/connection.py",
    "aiokafka_lite/net/in_flight.py",
    "aiokafka_lite/producer/accept/accept.py",
    "aiokafka_lite/producer/accept/hot_path.py",
    "aiokafka_lite/producer/accumulator.py",
    "aiokafka_lite/producer/admission.py",
    "aiokafka_lite/producer/answers.py",
    "aiokafka_lite/producer/batch.py",
    "aiokafka_lite/producer/delivery.py",
    "aiokafka_lite/producer/dispatch.py",
    "aiokafka_lite/producer/partition.py",
    "aiokafka_lite/producer/partition_batches.py",
    "aiokafka_lite/producer/partitioning/choice.py",
    "aiokafka_lite/producer/partitioning/partitioner.py",
    "aiokafka_lite/producer/produce_requests.py",
    "aiokafka_lite/producer/producer_ids.py",
    "aiokafka_lite/producer/record.py",
    "aiokafka_lite/producer/sender.py",
    "aiokafka_lite/producer/sequences.py",
    "aiokafka_lite/producer/settle.py",
    "aiokafka_lite/producer/topic.py",
    "aiokafka_lite/producer/transactional_ids.py",
    "aiokafka_lite/protocol/codec.py",
    "aiokafka_lite/protocol/connection.py",
    "aiokafka_lite/protocol/framing.py",
    "aiokafka_lite/protocol/records/batch.py",
    "aiokafka_lite/protocol/records/batch_header.py",
    "aiokafka_lite/protocol/records/build.py",
    "aiokafka_lite/protocol/records/record_format.py",
    "aiokafka_lite/protocol/records/legacy.py",
    "aiokafka_lite/protocol/records/murmur2.py",
    "aiokafka_lite/protocol/records/scan.py",
    "aiokafka_lite/protocol/records/varint.py",
    "aiokafka_lite/serialization/headers.py",
)
"""The hot modules, which run once or more per record."""

C_MODULES = (
    "aiokafka_lite/consumer/rows.c",
    "aiokafka_lite/protocol/records/decode.c",
    "aiokafka_lite/protocol/records/encode.c",
)
"""What mypyc cannot make fast. Each takes the place of the ``.py`` file beside it, which is plain Python's."""

SHARED_LIBRARY = "aiokafka_lite.compiled"
"""mypyc makes one shared library, ``compiled__mypyc``, and a small extension module for each compiled module."""

_COMPILING_COMMANDS = {"bdist_wheel", "build", "build_ext", "install"}
_OPTIONS = (
    "--config-file=",  # mypy's settings for `make lint` depend on installed packages
    "--no-site-packages",
    "--ignore-missing-imports",
    "--follow-imports=silent",
    f"--python-version={sys.version_info.major}.{sys.version_info.minor}",
)


def get_requires_for_build_wheel(config_settings: Mapping[str, object] | None = None) -> list[str]:
    requires: list[str] = build_meta.get_requires_for_build_wheel(config_settings)
    if _is_compiled():
        with (ROOT / "pyproject.toml").open("rb") as file:
            requires += tomllib.load(file)["dependency-groups"]["compile"]
    return requires


def extensions() -> list[Extension]:
    """Return the extension modules of this build: none for plain Python. Prints which of the two it is."""
    if _COMPILING_COMMANDS.isdisjoint(sys.argv):
        return []
    if not _is_compiled():
        print("aiokafka_lite is installed as plain Python; AIOKAFKA_LITE_PURE=0 in the environment compiles it")
        return []
    if (obstacle := _cannot_compile() or _no_mypyc()) is not None:
        sys.exit(f"aiokafka_lite cannot be compiled, and AIOKAFKA_LITE_PURE=0 requires that: {obstacle}")
    from mypyc.build import mypycify

    modules: list[Extension] = mypycify(
        [*_OPTIONS, *COMPILED_MODULES], opt_level="2", debug_level="0", group_name=SHARED_LIBRARY
    )
    modules += [Extension(path.removesuffix(".c").replace("/", "."), [path]) for path in C_MODULES]
    print(f"aiokafka_lite is compiled: {len(COMPILED_MODULES)} modules")
    return modules


def repository() -> str:
    """Return the public address of the source, or nothing while there is none."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        address: str = tomllib.load(file)["tool"]["aiokafka_lite"]["repository"]
    return address.rstrip("/")


def project_urls(address: str) -> dict[str, str]:
    """Return the links that a package index shows beside the description."""
    if not address:
        return {}
    paths = {
        "Changelog": "/blob/main/CHANGELOG.md",
        "Documentation": "/tree/main/docs",
        "Issues": "/issues",
        "Source": "",
    }
    return {name: address + path for name, path in paths.items()}


def description(readme: str, address: str) -> str:
    """Return README for a package index, where relative links lead nowhere.

    With an address they are links to the files there. Without one, a link is its text, and a picture is left out.
    """
    if address:
        readme = re.sub(r"!\[([^]]*)\]\((?!https?:)([^)\s]+)\)", rf"![\1]({address}/raw/main/\2)", readme)
        return re.sub(r"\]\((?!https?:|#)([^)\s]+)\)", rf"]({address}/blob/main/\1)", readme)
    readme = re.sub(r"!\[[^]]*\]\((?!https?:)[^)\s]+\)", "", readme)
    readme = re.sub(r"\[\]\((?!https?:|#)[^)\s]+\)\n?", "", readme)  # badges: links whose picture was left out
    return re.sub(r"\[([^]]+)\]\((?!https?:|#)[^)\s]+\)", r"\1", readme)


def outdated() -> list[str]:
    """Return the modules in this directory that have changed since `make build` compiled them in place."""
    library = [path for suffix in EXTENSION_SUFFIXES for path in (ROOT / "aiokafka_lite").glob(f"*__mypyc{suffix}")]
    built = max((path.stat().st_mtime for path in library), default=0.0)
    modules = (*COMPILED_MODULES, *C_MODULES)
    return [module for module in modules if library and (ROOT / module).stat().st_mtime > built]


def _is_compiled() -> bool:
    pure = os.environ.get("AIOKAFKA_LITE_PURE", "")
    if pure not in ("", "0", "1"):
        sys.exit(f"AIOKAFKA_LITE_PURE must be 1 or 0, got {pure!r}")
    return pure == "0"


def _cannot_compile() -> str | None:
    """Return the reason why this machine cannot compile an extension module; None if it can."""
    if platform.python_implementation() != "CPython":
        return f"{platform.python_implementation()} is not CPython"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this is a free-threaded build of Python"
    from distutils.ccompiler import new_compiler  # setuptools provides it where Python no longer does
    from distutils.sysconfig import customize_compiler

    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "probe.c")
        source.write_text("#include <Python.h>\nint probe(void) { return PY_VERSION_HEX != 0; }\n")
        try:
            compiler = new_compiler()
            customize_compiler(compiler)
            compiler.compile([str(source)], output_dir=scratch, include_dirs=[sysconfig.get_path("include")])
        except (BaseError, CompileError, OSError) as error:
            return f"there is no C compiler with the headers of Python ({error})"
    return None


def _no_mypyc() -> str | None:
    return None if find_spec("mypyc") is not None else "mypyc is not installed"
