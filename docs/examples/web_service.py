"""A web service between two topics.

It writes an order for each request, and a receipt for each order that it reads.

    pip install fastapi uvicorn prometheus_client
    python web_service.py
    curl localhost:8000/orders --json '{"order_id": "1", "item": "coffee"}'
    curl localhost:8000/ready

`/live` and `/ready` are for the probes of Kubernetes, `/metrics` for Prometheus. `Workers`
process many orders at once. An order that cannot be processed goes to the topic `orders.dead`.

Start several instances (``PORT=8001 python web_service.py``): they share the orders. SIGTERM
stops one gracefully. An order that was answered with 201 gets a receipt, even if instances
restart meanwhile. It may get two receipts, for example if an instance is killed between a
receipt and its commit. Readers of receipts deduplicate by order id.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from pydantic import BaseModel

from aiokafka_lite import (
    ConsumerGroup,
    JsonDeserializer,
    KafkaError,
    KafkaTimeout,
    Producer,
    Record,
    Workers,
)
from aiokafka_lite.metrics.prometheus import KafkaCollector
from aiokafka_lite.processing import dead_letter, retry

REGISTRY = CollectorRegistry()
SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")


class Order(BaseModel):
    order_id: str
    item: str


async def write_receipt(order: Record[bytes, Any]) -> None:
    """Write the receipt of an order. Its acknowledgement marks the order as processed."""
    receipt = {
        "order_id": order.value["order_id"],
        "partition": order.partition,
        "offset": order.offset,
    }
    await app.state.producer.send("receipts", json.dumps(receipt), key=order.key)


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    producer = Producer(SERVERS)
    group = ConsumerGroup(
        SERVERS,
        group_id="receipts",
        value_deserializer=JsonDeserializer(),
        session_timeout=10.0,
    )
    rules = [
        retry(KafkaTimeout, attempts=1_000_000),  # an outage of Kafka is no fault of the order
        dead_letter(topic="orders.dead"),  # other programs may write wrong orders
    ]
    workers = Workers(write_receipt, concurrency=32, rules=rules, producer=producer)
    app.state.producer, app.state.group = producer, group
    async with producer, group:
        KafkaCollector(producer, group, workers, registry=REGISTRY)
        consuming = asyncio.create_task(group.consume(["orders"], workers))
        yield
        # All requests are finished. Orders that wait are read by another instance.
        await workers.drain(timeout=10.0)
        await group.close()
        await consuming  # raises the error that ended it, if one did


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def place(order: Order) -> dict[str, object]:
    """Answer 201 only after all in-sync replicas have acknowledged the order."""
    try:
        written = await app.state.producer.send(
            "orders", order.model_dump_json(), key=order.order_id, timeout=10.0
        )
    except KafkaError as error:
        raise HTTPException(503, str(error)) from error
    return {
        "order_id": order.order_id,
        "partition": written.partition,
        "offset": written.offset,
    }


def problems(ready: bool, response: Response) -> dict[str, list[str]]:
    """Answer 503 if a client is not live, or not ready, and give the reasons."""
    reports = [client.health() for client in (app.state.producer, app.state.group)]
    well = all(health.is_ready if ready else health.is_live for health in reports)
    response.status_code = 200 if well else 503
    return {"problems": [problem for health in reports for problem in health.problems]}


@app.get("/live")
async def live(response: Response) -> dict[str, list[str]]:
    """Answer 503 if only a restart helps. An outage of Kafka is no reason for one."""
    return problems(False, response)


@app.get("/ready")
async def ready(response: Response) -> dict[str, list[str]]:
    """Answer 503 while this instance cannot do its work, as during an outage of Kafka."""
    return problems(True, response)


@app.get("/metrics")
async def metrics() -> Response:
    """Answer with the metrics of the clients, the lag among them, for Prometheus."""
    return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)


if __name__ == "__main__":
    host, port = os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", "8000"))
    uvicorn.run(app, host=host, port=port)
