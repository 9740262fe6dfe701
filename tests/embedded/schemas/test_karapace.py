"""Karapace: a registry with most of the same API. A stand-in gives the answers of its routers, version 6.2.

``src/karapace/api/routers/compatibility.py`` has only the route with a version; FastAPI answers any other path with the
JSON string "Not Found". ``controller.py`` answers 40402 for a subject without versions. ``routers/subjects.py`` does
not know the parameter ``subjectPrefix``, and a registration answers with the id alone.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest

from aiokafka_lite.embedded.registry.http_server import HttpRequest, HttpResponse, HttpServer
from aiokafka_lite.errors import SchemaRegistryError
from aiokafka_lite.schemas import Compatibility, Schema, SchemaRegistryClient

LONG, STRING = Schema('"long"'), Schema('"string"')


class Karapace:
    """One schema for each subject. A schema is compatible if it is the same."""

    def __init__(self) -> None:
        self.schemas: dict[str, str] = {}
        self.requests: list[str] = []

    def answer(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(f"{request.method} {request.path}")
        if request.path == "/subjects":
            return HttpResponse(HTTPStatus.OK, sorted(self.schemas))
        first, *rest = request.path.split("/")[1:]
        if first == "subjects":
            self.schemas[rest[0]] = json.loads(request.body)["schema"]
            return HttpResponse(HTTPStatus.OK, {"id": 1})
        if len(rest) < 4:
            return HttpResponse(HTTPStatus.NOT_FOUND, "Not Found")
        _, subject, _, version = rest
        if subject not in self.schemas or version not in ("1", "latest"):
            content = {"error_code": 40402, "message": f"Version {version} not found."}
            return HttpResponse(HTTPStatus.NOT_FOUND, content)
        if self.schemas[subject] == json.loads(request.body)["schema"]:
            return HttpResponse(HTTPStatus.OK, {"is_compatible": True})
        return HttpResponse(HTTPStatus.OK, {"is_compatible": False, "messages": ["reader type: string"]})


@pytest.fixture
def karapace() -> Karapace:
    return Karapace()


@pytest.fixture
async def client(karapace: Karapace) -> AsyncIterator[SchemaRegistryClient]:
    server = HttpServer(karapace.answer)
    await server.start()
    async with SchemaRegistryClient(f"http://127.0.0.1:{server.port}") as client:
        yield client
    await server.close()


async def test_compatibility_is_checked_with_the_latest_version(
    karapace: Karapace, client: SchemaRegistryClient
) -> None:
    await client.register("orders", LONG)
    refused = Compatibility(is_compatible=False, messages=("reader type: string",))
    for version in (None, "latest", 1):
        assert await client.check_compatibility("orders", STRING, version=version) == refused  # type: ignore[arg-type]
        assert await client.check_compatibility("orders", LONG, version=version) == Compatibility(True)  # type: ignore[arg-type]
    assert karapace.requests[1:3] == [
        "POST /compatibility/subjects/orders/versions",
        "POST /compatibility/subjects/orders/versions/latest",
    ]


async def test_a_subject_without_versions_is_compatible_with_any_schema(client: SchemaRegistryClient) -> None:
    assert await client.check_compatibility("orders", LONG) == Compatibility(True)
    with pytest.raises(SchemaRegistryError, match="Version 2 not found") as caught:
        await client.check_compatibility("orders", LONG, version=2)
    assert caught.value.code == 40402


async def test_subjects_with_a_prefix_are_chosen_here(client: SchemaRegistryClient) -> None:
    for subject in ("orders-value", "payments-value"):
        await client.register(subject, LONG)
    assert await client.subjects("orders") == ["orders-value"]
    assert await client.subjects() == ["orders-value", "payments-value"]
