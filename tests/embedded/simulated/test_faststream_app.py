"""A FastStream application on the drop-in for aiokafka, unchanged, in a simulation.

It runs in a process of its own, because ``install`` replaces aiokafka for the whole process.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("faststream")

PROGRAM = """
import sys

from aiokafka_lite.compat import aiokafka
from aiokafka_lite.testing.simulation import Instance, at_least_once, orders, simulate

aiokafka.install()

from faststream import AckPolicy
from tests.embedded.simulated.faststream_app import create_app


async def service(instance: Instance) -> None:
    async def charge(order: str) -> None:
        await instance.effect("charge", order, idempotence_key=order)

    await create_app(instance.bootstrap_servers, charge, AckPolicy[sys.argv[1]]).run()


print(simulate(service, orders(40), seeds=int(sys.argv[2]), checks=at_least_once()))
"""


def run(ack_policy: str, seeds: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, ack_policy, str(seeds)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_an_application_that_acknowledges_what_it_has_processed_passes() -> None:
    result = run("NACK_ON_ERROR", 20)
    assert result.stdout.startswith("Simulation(seeds=20"), result.stderr


def test_the_default_policy_loses_a_record_whose_handler_fails() -> None:
    result = run("ACK_FIRST", 100)
    assert "has no effect and no output record" in result.stderr, result.stdout + result.stderr[-2000:]
