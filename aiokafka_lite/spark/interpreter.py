"""The Python of Spark's workers in a local session: this interpreter, with fewer imports.

Spark puts ``pyspark.zip``, which has no bytecode, before the installed PySpark on the path of its Python processes. So
each of them compiles PySpark again: its imports take 1.0 s of CPU time instead of 0.3 s. A script that removes the zip
from the path, and then becomes the interpreter, avoids that.

The script also replaces Spark's daemon by ``aiokafka_lite.spark.daemon``, whose workers need not import this package.
Does not import pyspark.
"""

from __future__ import annotations

import os
import shlex
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ..own_directory import OwnDirectory

_SCRIPT = """#!/bin/sh
# Starts Python with the installed PySpark, which has bytecode, instead of PySpark's zip.
export PYTHONPATH="${{PYTHONPATH#*pyspark.zip:}}"
if [ "$1 $2" = "-m pyspark.daemon" ]; then
  shift 2
  exec {python} -c {daemon} "$@"
fi
exec {python} "$@"
"""

_DAEMON = """# pyspark.daemon, started by aiokafka_lite
try:
    from aiokafka_lite.spark.daemon import main
except ImportError:  # the program has the package, but its workers do not
    from pyspark.daemon import manager as main
main()
"""


@cache
def worker_python() -> str:
    """Return the path of a script that starts this interpreter, or of the interpreter if a script cannot work."""
    spec = find_spec("pyspark")
    if os.name != "posix" or spec is None or spec.origin is None or not Path(spec.origin).exists():
        return sys.executable  # PySpark itself comes from the zip
    directory = OwnDirectory("python").path
    script = directory / "python"
    script.write_text(_SCRIPT.format(python=shlex.quote(sys.executable), daemon=shlex.quote(_DAEMON)))
    script.chmod(0o755)
    return str(script) if os.access(script, os.X_OK) else sys.executable  # the file system may forbid programs
