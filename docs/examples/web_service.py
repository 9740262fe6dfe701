"""A web service between two topics.

It writes an order for each request, and a receipt for each order that it reads.

    pip install fastapi uvicorn prometheus_client
    python web_service.py
    curl localhost:8000/orders --json '{"order_id": "1", "item": "coffee"}'
    curl localhost:8000/ready

`/live` and `/ready` are for the probes of Kubernetes, `/metrics` for Prometheus, and `/health`
shows the lag. A service whose records take long gives them to `Workers`: see `worker.py`.

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
from prometheus_client import CollectorRegistry, make_asgi_app
from pydantic import BaseModel

from aiokafka_lite import Consumer, JsonDeserializer, KafkaError, Producer
from aiokafka_lite.metrics.prometheus import KafkaCollector

REGISTRY = CollectorRegistry()
SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")


class Order(BaseModel):
    order_id: str
    item: str


async def write_receipts(consumer: Consumer[bytes, Any], producer: Producer) -> None:
    """Write a receipt for each order. Its acknowledgement marks the order as processed."""
    async for order in consumer:
        if order.value is None:  # this service never writes None, but other programs may
            continue
        receipt = {
            "order_id": order.value["order_id"],
            "partition": order.partition,
            "offset": order.offset,
        }
        await producer.send("receipts", json.dumps(receipt), key=order.key)


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with (
        Producer(SERVERS) as producer,
        Consumer(
            SERVERS,
            topics=["orders"],
            group_id="receipts",
            value_deserializer=JsonDeserializer(),
            session_timeout=10.0,
        ) as consumer,
    ):
        app.state.producer, app.state.consumer = producer, consumer
        KafkaCollector(producer, consumer, registry=REGISTRY)
        app.state.receipts = asyncio.create_task(write_receipts(consumer, producer))
        yield
        # All requests are finished. The order in progress stays unmarked, so another instance
        # reads it again.
        app.state.receipts.cancel()
        await asyncio.wait([app.state.receipts])


app = FastAPI(lifespan=lifespan)
app.mount("/metrics", make_asgi_app(REGISTRY))


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
    """Answer 503 if one of the clients is not live, or not ready, and give the reasons."""
    reports = [client.health() for client in (app.state.producer, app.state.consumer)]
    texts = [problem for health in reports for problem in health.problems]
    well = all(health.is_ready if ready else health.is_live for health in reports)
    if app.state.receipts.done():
        well, texts = False, [*texts, repr(app.state.receipts.exception())]
    response.status_code = 200 if well else 503
    return {"problems": texts}


@app.get("/live")
async def live(response: Response) -> dict[str, list[str]]:
    """Answer 503 if only a restart helps. An outage of Kafka is no reason for one."""
    return problems(False, response)


@app.get("/ready")
async def ready(response: Response) -> dict[str, list[str]]:
    """Answer 503 while this instance cannot do its work, as during an outage of Kafka."""
    return problems(True, response)


@app.get("/health")
async def health(response: Response) -> dict[str, object]:
    """Answer 200 while receipts are written, with the member state and the lag."""
    consumer, receipts = app.state.consumer, app.state.receipts
    answer: dict[str, object] = {"group": consumer.membership.name}
    if receipts.done():
        response.status_code = 503
        answer["error"] = repr(receipts.exception())
        return answer
    try:
        lag = await consumer.lag(timeout=2.0)
    except KafkaError as error:
        response.status_code = 503
        answer["error"] = str(error)
    else:
        answer["lag"] = {str(partition): behind for partition, behind in lag.items()}
    return answer


if __name__ == "__main__":
    host, port = os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", "8000"))
    uvicorn.run(app, host=host, port=port)
