"""Simulation of a service: it runs in virtual time against three simulated brokers, with random faults from a seed.

``simulate(service, orders(100))`` raises SimulationFailure if a record is lost, doubled or reordered.
"""

from __future__ import annotations

from .checks import (
    Broken,
    Check,
    at_least_once,
    committed_after_effect,
    default_checks,
    in_order_by_key,
    no_unhandled_exception,
    nothing_left_behind,
    one_owner,
    output_equals,
    outputs_once,
    processed_at_least_once,
    processed_at_most_once,
    stops_within,
)
from .database import DatabaseFailed, DatabaseSession, DatabaseTransaction, RowExists
from .effects import EffectFailed
from .history import Effect, History, Outcome, RowChange, Written
from .process import Instance
from .real_io import RealIOError
from .service_faults import FAULTS
from .simulation import Simulation, SimulationFailure, simulate
from .store import SimulatedStore
from .workload import Message, orders

__all__ = [
    "FAULTS",
    "Broken",
    "Check",
    "DatabaseFailed",
    "DatabaseSession",
    "DatabaseTransaction",
    "Effect",
    "EffectFailed",
    "History",
    "Instance",
    "Message",
    "Outcome",
    "RealIOError",
    "RowChange",
    "RowExists",
    "SimulatedStore",
    "Simulation",
    "SimulationFailure",
    "Written",
    "at_least_once",
    "committed_after_effect",
    "default_checks",
    "in_order_by_key",
    "no_unhandled_exception",
    "nothing_left_behind",
    "one_owner",
    "orders",
    "output_equals",
    "outputs_once",
    "processed_at_least_once",
    "processed_at_most_once",
    "simulate",
    "stops_within",
]
