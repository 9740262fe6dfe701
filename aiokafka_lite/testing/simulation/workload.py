"""What is written into the topics of a simulation before and while the service runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from ...arguments import must_be, whole
from ...errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Message:
    """A record to write. ``id`` names it in effects and checks; by default, it is the text of the value."""

    topic: str
    value: str
    key: str | None = None
    id: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.topic, str) or not self.topic:
            raise ConfigurationError(must_be("topic", "the name of a topic", self.topic))
        if not isinstance(self.value, str):
            raise ConfigurationError(must_be("value", "text", self.value))
        if self.key is not None and not isinstance(self.key, str):
            raise ConfigurationError(must_be("key", "text, or None", self.key))
        if not isinstance(self.id, str):
            raise ConfigurationError(must_be("id", "text", self.id))

    @property
    def identity(self) -> str:
        """The name of the record in effects and checks."""
        return self.id or self.value


Workload: TypeAlias = Iterable[Message] | Callable[[Random], Iterable[Message]]


def orders(count: int, *, topic: str = "orders", customers: int = 8) -> Callable[[Random], Iterator[Message]]:
    """Return a workload of random orders: JSON with ``order``, ``customer`` and ``amount``, keyed by the customer.

    The id of a message is its ``order``, such as ``"order-17"``.
    """
    whole("count", count, 1)
    whole("customers", customers, 1)

    def generate(random: Random) -> Iterator[Message]:
        for number in range(1, count + 1):
            customer = f"customer-{random.randrange(customers) + 1}"
            order = f"order-{number}"
            value = json.dumps({"order": order, "customer": customer, "amount": random.randrange(1, 100)})
            yield Message(topic, value, customer, order)

    return generate


def checked_workload(workload: object) -> Workload:
    """Return the workload, for any number of runs. Raises ConfigurationError for an object of another kind."""
    if callable(workload):
        return workload
    if isinstance(workload, str | bytes) or not isinstance(workload, Iterable):
        raise ConfigurationError(must_be("workload", "Message objects, or a function that returns them", workload))
    return list(workload)  # a generator yields its messages once


def messages_of(workload: Workload, random: Random) -> list[Message]:
    """Return the messages of a workload for one seed. Raises ConfigurationError if there are none."""
    messages = list(workload(random) if callable(workload) else workload)
    if not messages:
        raise ConfigurationError("the workload writes nothing, so no check could fail; give it at least one Message")
    for message in messages:
        if not isinstance(message, Message):
            raise ConfigurationError(must_be("workload", "Message objects", message))
    identities = [message.identity for message in messages]
    if len(set(identities)) < len(identities):
        twice = next(identity for identity in identities if identities.count(identity) > 1)
        raise ConfigurationError(f"the workload has two messages with the id {twice!r}; give each Message an id")
    return messages
