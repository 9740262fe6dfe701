"""The ASGI application of the page: the answers as JSON, the live tail, and the changes.

Rule: the page shows records that other people wrote. So answers are JSON, and the page inserts them as text and never
as HTML.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from ..admin import Admin, Reset
from ..admin.answers import has_code
from ..arguments import must_be, whole
from ..consumer import Consumer
from ..errors import AuthorizationError, ErrorCode, KafkaError, UnknownTopic
from ..extras import extra
from ..producer import Producer
from ..schemas.json_forms import JsonForms
from .guard import Guard
from .history import LagHistory
from .records import Query, read, tail
from .timeline import timeline
from .values import indented
from .views import Views

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from ..embedded import EmbeddedCluster
    from ..schemas import SchemaRegistryClient

STATIC = Path(__file__).parent / "static"
MOST_OPEN = 8
"""The most live tails, and the most reads and searches, at a time. Each has a consumer of its own."""


@dataclass(frozen=True, kw_only=True)
class Clients:
    """The clients of the page. ``embedded`` is the cluster in this process, whose requests the page shows."""

    admin: Admin
    new_consumer: Callable[[], Consumer[bytes, bytes]]
    producer: Producer[bytes, bytes] | None = None
    """None if the page must not change anything."""
    registry: SchemaRegistryClient | None = None
    embedded: EmbeddedCluster | None = None


def application(clients: Clients, *, token: str, hosts: frozenset[str], closing: asyncio.Event) -> Starlette:
    """Return the application. ``hosts`` are the values of ``Host`` that it answers, with the port. ``closing`` ends
    the live tails.

    The address of the page contains ``token``; the browser gets it as a cookie. Raises ConfigurationError without the
    extra ``ui``.
    """
    applications, routing = extra("starlette.applications", "ui"), extra("starlette.routing", "ui")
    middleware = extra("starlette.middleware", "ui")
    static = extra("starlette.staticfiles", "ui").StaticFiles(directory=STATIC)
    history = LagHistory(clients.admin)
    page = _Page(clients, Views(clients.admin, history), closing)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(history.run)
            yield
            tasks.cancel_scope.cancel()

    def get(path: str, view: Callable[[Request], Awaitable[Any]]) -> Any:
        return routing.Route(path, _answered(view))

    def post(path: str, change: Callable[[Request], Awaitable[Any]]) -> Any:
        return routing.Route(path, _answered(change), methods=["POST"])

    starlette: Starlette = applications.Starlette(
        routes=[
            routing.Route("/", page.index),
            get("/api/about", page.about),
            get("/api/cluster", page.cluster),
            get("/api/topics", page.topics),
            get("/api/topics/{topic}", page.topic),
            get("/api/topics/{topic}/records", page.records),
            routing.Route("/api/topics/{topic}/tail", page.tail),
            get("/api/groups", page.groups),
            get("/api/groups/{group:path}", page.group),
            get("/api/schemas", page.schemas),
            get("/api/schemas/{subject:path}", page.schema),
            get("/api/timeline", page.timeline),
            post("/api/topics/{topic}/records", page.produce),
            post("/api/topics/{topic}/delete", page.delete_topic),
            post("/api/reset/{group:path}", page.reset),
            routing.Mount("/static", static),
        ],
        middleware=[middleware.Middleware(Guard, token=token, hosts=hosts)],
        lifespan=lifespan,
    )
    return starlette


def _answered(view: Callable[[Request], Awaitable[Any]]) -> Callable[[Request], Awaitable[Response]]:
    """Answer with the result as JSON, or with the text of an error that the user can understand."""
    responses = extra("starlette.responses", "ui")

    async def answer(request: Request) -> Response:
        try:
            response: Response = responses.JSONResponse(await view(request))
        except (ValueError, TypeError) as error:
            response = responses.JSONResponse({"error": str(error)}, 400)
        except _TooManyError as error:
            response = responses.JSONResponse({"error": str(error)}, 429)
        except KafkaError as error:
            is_unknown = isinstance(error, UnknownTopic) or has_code(error, ErrorCode.GROUP_ID_NOT_FOUND)
            status = 404 if is_unknown else 403 if isinstance(error, AuthorizationError) else 502
            response = responses.JSONResponse({"error": str(error)}, status)
        return response

    return answer


def _number(request: Request, name: str, default: int | None) -> int | None:
    """Return a parameter of the address. Raises ValueError for another text than a whole number >= 0."""
    text = request.query_params.get(name)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValueError(must_be(name, "a whole number >= 0", text))
    return int(text)


async def _body(request: Request) -> dict[str, Any]:
    """Return the body of a change. Raises ValueError if it is not JSON, TypeError if it is no object."""
    body = await request.json()
    if not isinstance(body, dict):
        raise TypeError(must_be("the body", "an object", body))
    return body


def _field(body: dict[str, Any], name: str, *, as_json: bool = False) -> bytes | None:
    """Return the bytes of a field. With ``as_json``, an object or a list becomes its JSON."""
    content = body.get(name)
    if as_json and isinstance(content, dict | list):
        content = json.dumps(content, ensure_ascii=False)
    if content is not None and not isinstance(content, str):
        raise TypeError(must_be(name, "a string or null", content))
    try:
        return None if content is None else content.encode()
    except UnicodeEncodeError:
        raise ValueError(must_be(name, "a string that UTF-8 can encode", content)) from None


class _TooManyError(Exception):
    pass


class _Places:
    """Counts what is open of one kind, and refuses more than ``MOST_OPEN``."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._open = 0

    def __repr__(self) -> str:
        return f"<_Places {self._what} open={self._open}>"

    @contextmanager
    def one(self) -> Iterator[None]:
        if self._open >= MOST_OPEN:
            raise _TooManyError(f"{MOST_OPEN} {self._what} are open; wait until one has ended")
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1


class _Page:
    """The answers. State is in the clients, and in the history of the views."""

    def __init__(self, clients: Clients, views: Views, closing: asyncio.Event) -> None:
        self._clients = clients
        self._views = views
        self._closing = closing
        self._tails, self._reads = _Places("live tails"), _Places("reads")
        self._forms = None if clients.registry is None else JsonForms(clients.registry)

    def __repr__(self) -> str:
        return f"<_Page writes={self._clients.producer is not None}>"

    async def index(self, request: Request) -> Response:
        response: Response = extra("starlette.responses", "ui").FileResponse(STATIC / "index.html")
        return response

    async def about(self, request: Request) -> Any:
        return {
            "writes": self._clients.producer is not None,
            "schemas": self._clients.registry is not None,
            "embedded": self._clients.embedded is not None,
        }

    async def cluster(self, request: Request) -> Any:
        return await self._views.cluster()

    async def topics(self, request: Request) -> Any:
        return await self._views.topics()

    async def topic(self, request: Request) -> Any:
        return await self._views.topic(request.path_params["topic"], _number(request, "first", 0) or 0)

    async def records(self, request: Request) -> Any:
        parameters, limit = request.query_params, _number(request, "limit", None)
        query = Query(
            topic=request.path_params["topic"],
            partition=_number(request, "partition", None),
            place=parameters.get("from") or "latest",
            limit=50 if limit is None else limit,
            search=parameters.get("search", ""),
        )
        with self._reads.one():
            return await read(self._clients.admin, self._clients.new_consumer, query, self._forms)

    async def tail(self, request: Request) -> Response:
        async def lines() -> AsyncIterator[str]:
            clients, topic = self._clients, request.path_params["topic"]
            try:
                with self._tails.one():
                    async for records in tail(clients.new_consumer, clients.admin, topic, self._closing, self._forms):
                        yield f"data: {json.dumps(records)}\n\n"
            except (KafkaError, _TooManyError) as error:
                yield f"data: {json.dumps({'error': str(error)})}\n\n"

        response: Response = extra("starlette.responses", "ui").StreamingResponse(
            lines(), media_type="text/event-stream"
        )
        return response

    async def groups(self, request: Request) -> Any:
        return await self._views.groups()

    async def group(self, request: Request) -> Any:
        return await self._views.group(request.path_params["group"])

    def _registry(self) -> SchemaRegistryClient:
        if self._clients.registry is None:
            raise ValueError("no schema registry is given; start the page with --registry")
        return self._clients.registry

    async def schemas(self, request: Request) -> Any:
        return [{"name": subject} for subject in await self._registry().subjects()]

    async def schema(self, request: Request) -> Any:
        registry, subject = self._registry(), request.path_params["subject"]
        version = request.query_params.get("version")
        schema = await (registry.latest(subject) if version is None else registry.by_version(subject, int(version)))
        return {
            "name": subject,
            "version": schema.version,
            "versions": await registry.versions(subject),
            "id": schema.schema_id,
            "type": schema.schema.type,
            "text": indented(schema.schema.text),
        }

    async def timeline(self, request: Request) -> Any:
        if self._clients.embedded is None:
            raise ValueError("only the embedded broker has a timeline; start it with aiokafka-lite broker --ui")
        return timeline(self._clients.embedded)

    # Changes.

    def _producer(self) -> Producer[bytes, bytes]:
        if self._clients.producer is None:
            raise ValueError("this page is read-only; start it with --allow-writes")
        return self._clients.producer

    async def produce(self, request: Request) -> Any:
        producer, body, topic = self._producer(), await _body(request), request.path_params["topic"]
        key, value, partition = _field(body, "key"), _field(body, "value", as_json=True), body.get("partition")
        # The producer would wait minutes for a topic or partition that does not exist yet.
        count = len((await self._clients.admin.topics.describe([topic]))[topic].partitions)
        if partition is not None and whole("partition", partition) >= count:
            raise ValueError(f"topic {topic!r} has no partition {partition}; it has {count}")
        written = await producer.send(topic, value, key=key, partition=partition)
        return {"partition": written.partition, "offset": written.offset}

    async def delete_topic(self, request: Request) -> Any:
        self._producer()
        topic = request.path_params["topic"]
        if (await _body(request)).get("confirm") != topic:
            raise ValueError("type the name of the topic to confirm")
        (await self._clients.admin.topics.delete(topic))[topic]
        return {"deleted": topic}

    async def reset(self, request: Request) -> Any:
        self._producer()
        group, body = request.path_params["group"], await _body(request)
        places = {"earliest": Reset.to_earliest, "latest": Reset.to_latest}
        if body.get("to") not in tuple(places):  # a list cannot be a key
            raise ValueError("to must be earliest or latest")
        moved = await self._clients.admin.groups.reset_offsets(
            group, places[body["to"]](), dry_run=body.get("confirm") != group
        )
        rows = [
            {"topic": item.topic, "partition": item.partition, "before": offset.before, "after": offset.after}
            for item, offset in sorted(moved.done.items())
        ]
        return {"moved": rows, "executed": body.get("confirm") == group}
