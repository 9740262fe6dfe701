"""The time of a start: imports and the command line, compared with an interpreter that does nothing.

The bytecode of imported modules is kept, as for an installed package, even if the environment turns this off.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from .compare import compare

IMPORTS = {
    "aiokafka_lite": "import aiokafka_lite",
    "… and Producer": "from aiokafka_lite import Producer",
    "… and Consumer": "from aiokafka_lite import Consumer",
    "… and EmbeddedCluster": "from aiokafka_lite import EmbeddedCluster",
    "… and all of them": "from aiokafka_lite import Consumer, EmbeddedCluster, Producer",
    "the pytest plugin": "import aiokafka_lite.testing.plugin",
    "aiokafka": "import aiokafka",
    "confluent_kafka": "import confluent_kafka",
    "kafka": "import kafka",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": directory}

        def run(*arguments: str) -> None:
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)

        candidates = {"python alone": lambda: run("-c", "pass"), "asyncio": lambda: run("-c", "import asyncio")}
        for name, code in IMPORTS.items():
            candidates[name] = lambda code=code: run("-c", code)  # type: ignore[misc]
        candidates["aiokafka-lite --help"] = lambda: run("-c", "from aiokafka_lite.cli import main; main()", "--help")
        for compile_all in candidates.values():
            compile_all()
        print(compare(candidates, rounds=7, title="a new process", unit="process"))


if __name__ == "__main__":
    main()
