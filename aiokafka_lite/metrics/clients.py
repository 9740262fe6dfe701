"""The clients whose metrics an exporter reads, from any thread."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterator
from typing import Protocol

from ..arguments import check_methods, must_be
from ..errors import ConfigurationError, IllegalStateError
from .instruments import Measured, Sample, samples_of

READ_TIMEOUT = 5.0
"""Seconds that another thread waits for the event loop of the clients."""


class Client(Protocol):
    """A ``Producer``, ``Consumer``, ``ConsumerGroup``, ``ShareConsumer``, ``Admin`` or ``Workers``."""

    def metrics(self) -> Measured:
        """The present metrics. Raises IllegalStateError while there are none."""


class ObservedClients:
    """Clients of one event loop, each with its own name. Holds weak references: it keeps no client alive.

    Create it in the event loop of the clients.
    """

    def __init__(self) -> None:
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise IllegalStateError("an exporter of metrics must be made in the event loop of the clients") from None
        self._clients: weakref.WeakKeyDictionary[Client, str] = weakref.WeakKeyDictionary()

    def add(self, client: Client, name: str | None) -> None:
        """Observe another client.

        If several clients have the same name, the second one gets the suffix ``-2``, and so on.
        """
        check_methods("client", client, "metrics")
        if name is not None and (not isinstance(name, str) or not name):
            raise ConfigurationError(must_be("name", "a text", name))
        given = name or _name_of(client)
        taken, number, unique = set(self._clients.values()), 1, given
        while unique in taken:
            number += 1
            unique = f"{given}-{number}"
        self._clients[client] = unique

    def remove(self, client: Client) -> None:
        """Stop observing this client."""
        self._clients.pop(client, None)

    def samples(self) -> list[Sample]:
        """All present samples. In another thread, waits until the event loop has collected them.

        Raises TimeoutError if the loop is blocked for ``READ_TIMEOUT`` seconds. A closed loop has no samples.
        """
        try:
            is_own_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_own_loop = False
        if is_own_loop:
            return list(self._samples())
        if self._loop.is_closed():
            return []
        return asyncio.run_coroutine_threadsafe(self._read(), self._loop).result(READ_TIMEOUT)

    async def _read(self) -> list[Sample]:
        return list(self._samples())

    def _samples(self) -> Iterator[Sample]:
        for client, name in list(self._clients.items()):
            try:
                snapshot = client.metrics()
            except IllegalStateError:
                continue  # a ConsumerGroup that is not consuming now
            yield from samples_of(snapshot, name)


def _name_of(client: Client) -> str:
    """The client id; the name of the class for an object without one."""
    try:
        snapshot = client.metrics()
    except IllegalStateError:
        return type(client).__name__
    found = getattr(snapshot, "client", snapshot)
    return getattr(found, "client_id", None) or type(client).__name__
