"""A FastStream application as it runs in production, with ``faststream run app:create_app --factory``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker
from pydantic import BaseModel


class Order(BaseModel):
    order: str
    customer: str
    amount: int


def create_app(servers: str, charge: Callable[[str], Awaitable[None]], ack_policy: AckPolicy) -> FastStream:
    """Return the application: it charges each order, and writes a bill."""
    broker = KafkaBroker(servers, logger=None)

    @broker.subscriber("orders", group_id="billing", auto_offset_reset="earliest", ack_policy=ack_policy)
    @broker.publisher("bills")
    async def bill(order: Order) -> str:
        await charge(order.order)
        return order.order

    return FastStream(broker, logger=None)
