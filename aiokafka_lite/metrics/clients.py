"""The clients whose metrics an exporter reads, from any thread."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterator
from typing import Protocol

from ..aio import forks
from ..arguments import check_methods, must_be
from ..errors import ConfigurationError, IllegalStateError
from .instruments import Measured, Sample, samples_of

READ_TIMEOUT = 5.0
"""Seconds that another thread waits for the event loop of the clients."""


class MeasuredClient(Protocol):
    """A ``Producer``, ``Consumer``, ``ConsumerGroup``, ``ShareConsumer``, ``Admin`` or ``Workers``."""

    def metrics(self) -> Measured:
        """Return the present metrics. Raises IllegalStateError while there are none."""


class ObservedClients:
    """Clients, each with its own name. Holds weak references: it keeps no client alive.

    Create it in the event loop of the clients. Clients of another event loop are added in that loop.
    """

    def __init__(self) -> None:
        loop = running_loop()
        if loop is None:
            raise IllegalStateError("an exporter of metrics must be made in the event loop of the clients")
        self._loop = loop
        self._loops = {loop: weakref.WeakKeyDictionary[MeasuredClient, str]()}
        forks.notify(self)

    def forked(self) -> None:
        """Observe nothing in a forked process: the clients run in its parent."""
        self._loops.clear()

    @property
    def is_over(self) -> bool:
        """Whether all event loops of clients are closed, so that there can be no samples."""
        return all(loop.is_closed() for loop in self._loops)

    def add(self, client: MeasuredClient, name: str | None) -> str:
        """Observe another client of the running event loop. Outside of a loop, it is one of the exporter's own loop.

        Returns its name. If several clients have the same name, the second one gets the suffix ``-2``, and so on.
        """
        check_methods("client", client, "metrics")
        if name is not None and (not isinstance(name, str) or not name):
            raise ConfigurationError(must_be("name", "a text", name))
        loop = running_loop() or self._loop
        for closed in [event_loop for event_loop in self._loops if event_loop.is_closed()]:
            del self._loops[closed]
        base = name or _name_of(client)
        names = {used for clients in self._loops.values() for other, used in clients.items() if other is not client}
        number, unique = 1, base
        while unique in names:
            number += 1
            unique = f"{base}-{number}"
        self._loops.setdefault(loop, weakref.WeakKeyDictionary())[client] = unique
        return unique

    def remove(self, client: MeasuredClient) -> None:
        """Stop observing this client."""
        for clients in self._loops.values():
            clients.pop(client, None)

    def samples_of(self, client: MeasuredClient) -> list[Sample]:
        """Return the present samples of one client, in its event loop; none elsewhere."""
        clients = self._loops.get(running_loop() or self._loop)
        name = None if clients is None else clients.get(client)
        return [] if name is None else list(_samples_of(client, name))

    def samples(self) -> list[Sample]:
        """Return all present samples. In another thread, waits until the event loop has collected them.

        Raises TimeoutError if a loop is blocked for ``READ_TIMEOUT`` seconds. A loop that does not run has no samples.
        """
        own_loop = running_loop()
        samples: list[Sample] = []
        for loop, clients in list(self._loops.items()):
            if loop is own_loop:
                samples += _samples(clients)
            elif loop.is_running():
                samples += asyncio.run_coroutine_threadsafe(_read(clients), loop).result(READ_TIMEOUT)
        return samples


def running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _read(clients: weakref.WeakKeyDictionary[MeasuredClient, str]) -> list[Sample]:
    return list(_samples(clients))


def _samples(clients: weakref.WeakKeyDictionary[MeasuredClient, str]) -> Iterator[Sample]:
    for client, name in list(clients.items()):
        yield from _samples_of(client, name)


def _samples_of(client: MeasuredClient, name: str) -> Iterator[Sample]:
    try:
        snapshot = client.metrics()
    except IllegalStateError:
        return  # a ConsumerGroup that is not consuming now
    yield from samples_of(snapshot, name)


def _name_of(client: MeasuredClient) -> str:
    """Return the client id; the name of the class for an object without one."""
    try:
        snapshot = client.metrics()
    except IllegalStateError:  # a ConsumerGroup that is not consuming now
        return getattr(client, "client_id", None) or type(client).__name__
    client_metrics = getattr(snapshot, "client", snapshot)
    return getattr(client_metrics, "client_id", None) or type(client).__name__
