"""The client of a schema registry: its REST API, a cache, and one request at a time for each schema.

Facts that never change are cached without a time limit: the schema of an id, and the id of a schema in a subject. Tasks
that need the same schema at the same time share one request. A cancelled caller does not end that request.
"""

from __future__ import annotations

import asyncio
import random as _random
import ssl
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast
from urllib.parse import quote

from .. import disclosure
from ..aio.component import NotCopyable
from ..aio.shared_calls import SharedCalls
from ..arguments import check_wait, must_be, text, whole
from ..errors import ConfigurationError, ProtocolError, SchemaRegistryError, harmless
from ..method_names import SCHEMA_REGISTRY, named_elsewhere
from ..settings.security import TokenProvider
from .http import RegistryHttp
from .schema import (
    Compatibility,
    CompatibilityLevel,
    Mode,
    RegisteredSchema,
    Schema,
    SchemaReference,
    SchemaType,
)
from .wire import LARGEST_ID, is_guid

T = TypeVar("T")

_NO_SUBJECT, _NO_VERSION = 40401, 40402
"""Codes of a registry for a subject, or a version of it, that does not exist."""


class SchemaRegistryClient(NotCopyable):
    """A client of Confluent's Schema Registry and of registries with the same API. Needs the extra ``schema-registry``.

    Use it as ``async with SchemaRegistryClient("http://localhost:8081") as registry``, or call ``close``; serializers
    and deserializers share it. ``url`` is an address, or several addresses of the same registry, tried in turn.

    ``username`` and ``password`` are for HTTP basic authentication. ``token`` is a bearer token, or a function that
    returns a token for each request. The function may be async; ``aiokafka_lite.oauth.ClientCredentials`` is one.
    ``ssl_context`` is for https addresses; without it, the system's certificates are trusted.

    A call retries a failed request until ``timeout`` seconds have passed. One request may take ``request_timeout``
    seconds; pauses grow from ``retry_backoff`` to ``retry_backoff_max`` seconds. ``random`` returns numbers in [0, 1)
    for jitter. The constructor does no I/O and raises ConfigurationError.

    All calls may be cancelled, and raise these errors:

    - SchemaRegistryError if the registry refuses a request.
    - KafkaTimeout if the registry does not answer in time.
    - AuthenticationError for a certificate that is not trusted, or a token that no header can carry.
    - ProtocolError for an answer without the needed fields.
    - ConfigurationError if a Kafka broker answers at ``url``.
    - IllegalStateError after ``close``.
    """

    if not TYPE_CHECKING:
        __getattr__ = named_elsewhere(SCHEMA_REGISTRY)

    def __init__(
        self,
        url: str | Iterable[str],
        *,
        username: str | None = None,
        password: str | None = None,
        token: str | TokenProvider | None = None,
        ssl_context: ssl.SSLContext | None = None,
        timeout: float = 30.0,
        request_timeout: float = 10.0,
        retry_backoff: float = 0.1,
        retry_backoff_max: float = 2.0,
        random: Callable[[], float] = _random.random,
    ) -> None:
        for name, seconds in (("timeout", timeout), ("request_timeout", request_timeout)):
            check_wait(seconds, name)
            if seconds <= 0:
                raise ConfigurationError(must_be(name, "a number of seconds > 0", seconds))
        for name, seconds in (("retry_backoff", retry_backoff), ("retry_backoff_max", retry_backoff_max)):
            check_wait(seconds, name)
            if seconds < 0.001:
                raise ConfigurationError(must_be(name, "a number of seconds >= 0.001", seconds))
        self._http = RegistryHttp(
            url,
            username=username,
            password=password,
            token=token,
            ssl_context=ssl_context,
            timeout=timeout,
            request_timeout=request_timeout,
            backoff=(retry_backoff, retry_backoff_max),
            random=random,
        )
        self._cache: dict[Hashable, Any] = {}
        self._requests = SharedCalls("the schema registry client was closed while it waited for an answer")
        self._registrations = 0

    def __repr__(self) -> str:
        return f"<SchemaRegistryClient {', '.join(map(disclosure.url, self._http.urls))} cached={len(self._cache)}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Calls in progress and later calls raise IllegalStateError."""
        requests = self._requests.cancel()
        await self._http.close()
        if requests:
            await asyncio.wait(requests)

    # Schemas.

    async def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """Register a schema as the newest version of a subject, and return it with its id.

        A schema that the subject has already keeps its id and version. The answer is cached. ``normalize`` lets the
        registry compare schemas without regard to their layout.
        """
        text("subject", subject)
        registered = await self._post(f"/subjects/{_quoted(subject)}/versions", subject, schema, normalize)
        self._registrations += 1
        return registered

    async def lookup(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """Look up the id and version of a schema that the subject has. The answer is cached.

        Raises SchemaRegistryError with code 40401 for an unknown subject, 40403 for a schema that is not in it.
        """
        text("subject", subject)
        return await self._post(f"/subjects/{_quoted(subject)}", subject, schema, normalize)

    async def _post(self, path: str, subject: str, schema: Schema, normalize: bool) -> RegisteredSchema:
        body = _body(schema)
        parameters = {"normalize": "true"} if normalize else None

        async def ask() -> RegisteredSchema:
            answer = await self._http.request("POST", path, body, subject=subject, parameters=parameters)
            return _registered({"subject": subject, **_dict(answer)}, schema)

        return await self._once((path, subject, schema, normalize), ask)

    async def by_id(self, schema_id: int) -> Schema:
        """Return the schema with this id. The answer is cached."""
        whole("schema_id", schema_id)
        return await self._once(schema_id, lambda: self._schema(f"/schemas/ids/{schema_id}"))

    async def by_guid(self, guid: str) -> Schema:
        """Return the schema with this GUID, which registries have since Confluent Platform 8. The answer is cached."""
        text("guid", guid)
        return await self._once(guid, lambda: self._schema(f"/schemas/guids/{_quoted(guid)}"))

    async def _schema(self, path: str) -> Schema:
        return _schema_of(_dict(await self._http.request("GET", path)))

    async def by_version(self, subject: str, version: int) -> RegisteredSchema:
        """Return one version of a subject, from 1 on. The answer is cached."""
        text("subject", subject)
        whole("version", version, 1)
        return await self._once((subject, version), lambda: self._version(subject, str(version)))

    async def latest(self, subject: str) -> RegisteredSchema:
        """Return the newest version of a subject. It is not cached; calls at the same time share one request."""
        text("subject", subject)
        # A request that began before a registration may return the version before it.
        key = ("latest", subject, self._registrations)
        return await self._requests.call(key, lambda: self._version(subject, "latest"))

    async def _version(self, subject: str, version: str) -> RegisteredSchema:
        path = f"/subjects/{_quoted(subject)}/versions/{version}"
        return _registered(_dict(await self._http.request("GET", path, subject=subject)), None)

    async def check_compatibility(
        self, subject: str, schema: Schema, *, version: int | Literal["latest"] | None = None
    ) -> Compatibility:
        """Check whether a schema may become the next version of a subject, by the subject's compatibility level.

        The registry compares with the versions that the level requires, or only with ``version``: a number, or
        ``"latest"``. A subject without versions is compatible with any schema.

        Karapace has no route without a version. There, a check without ``version`` is one with ``"latest"``, for which
        Karapace looks at all versions if the level is transitive.
        """
        text("subject", subject)
        if version is None:
            try:
                return await self._check_compatibility(subject, schema, "")
            except SchemaRegistryError as error:
                # Confluent's registry has a code of its own for each 404 but an unknown route.
                if error.status != HTTPStatus.NOT_FOUND or error.code != HTTPStatus.NOT_FOUND:
                    raise
            version = "latest"
        if version != "latest":
            return await self._check_compatibility(subject, schema, f"/{whole('version', version, 1)}")
        try:
            return await self._check_compatibility(subject, schema, "/latest")
        except SchemaRegistryError as error:
            if error.code not in (_NO_SUBJECT, _NO_VERSION):
                raise
            return Compatibility(is_compatible=True)

    async def _check_compatibility(self, subject: str, schema: Schema, version: str) -> Compatibility:
        path = f"/compatibility/subjects/{_quoted(subject)}/versions{version}"
        parameters = {"verbose": "true"}
        answer = _dict(await self._http.request("POST", path, _body(schema), subject=subject, parameters=parameters))
        messages = _list(answer.get("messages") or [], object)
        return Compatibility(_field(answer, "is_compatible", bool), tuple(map(str, messages)))

    # Subjects.

    async def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        """List the subjects that begin with ``prefix``; with ``deleted``, also deleted ones."""
        parameters = {"subjectPrefix": text("prefix", prefix)} if prefix else {}
        if deleted:
            parameters["deleted"] = "true"
        subjects = _list(await self._http.request("GET", "/subjects", parameters=parameters), str)
        return [subject for subject in subjects if subject.startswith(prefix)]  # Karapace does not know the parameter

    async def versions(self, subject: str) -> list[int]:
        """List the versions of a subject."""
        path = f"/subjects/{_quoted(text('subject', subject))}/versions"
        return _list(await self._http.request("GET", path, subject=subject), int)

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete a subject, and return its versions. Ids stay readable.

        ``permanent`` is for a subject that is deleted already: it removes the subject and its ids from the registry.
        """
        parameters = {"permanent": "true"} if permanent else None
        path = f"/subjects/{_quoted(text('subject', subject))}"
        return _list(await self._delete(path, subject, parameters), int)

    async def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> None:
        """Delete one version of a subject; ``permanent`` as for ``delete_subject``."""
        parameters = {"permanent": "true"} if permanent else None
        path = f"/subjects/{_quoted(text('subject', subject))}/versions/{whole('version', version, 1)}"
        await self._delete(path, subject, parameters)

    async def _delete(self, path: str, subject: str, parameters: Mapping[str, str] | None) -> object:
        try:
            return await self._http.request("DELETE", path, subject=subject, parameters=parameters)
        finally:  # the registry may have handled a request that was cancelled
            self._forget(subject)

    def _forget(self, subject: str) -> None:
        """Drop the cached facts about a subject. The schemas of ids stay, because records with these ids may exist."""
        for key in [key for key in self._cache if isinstance(key, tuple) and subject in key[:2]]:
            del self._cache[key]

    # Settings.

    async def compatibility(self, subject: str | None = None) -> CompatibilityLevel:
        """Return the compatibility level of a subject, or the registry's, which applies to subjects without a level."""
        return cast(CompatibilityLevel, await self._setting("config", subject, "compatibilityLevel"))

    async def set_compatibility(self, level: CompatibilityLevel, subject: str | None = None) -> None:
        """Set the compatibility level of a subject, or of the registry."""
        await self._http.request("PUT", _setting_path("config", subject), {"compatibility": level}, subject=subject)

    async def mode(self, subject: str | None = None) -> Mode:
        """Return the mode of a subject, or of the registry: whether schemas may be registered."""
        return cast(Mode, await self._setting("mode", subject, "mode"))

    async def set_mode(self, mode: Mode, subject: str | None = None) -> None:
        """Set the mode of a subject, or of the registry."""
        await self._http.request("PUT", _setting_path("mode", subject), {"mode": mode}, subject=subject)

    async def _setting(self, name: str, subject: str | None, field: str) -> str:
        path = _setting_path(name, subject)
        parameters = None if subject is None else {"defaultToGlobal": "true"}
        return _field(_dict(await self._http.request("GET", path, subject=subject, parameters=parameters)), field, str)

    # One request for one schema.

    async def _once(self, key: Hashable, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the cached value for ``key``. If there is none, call ``ask``, and cache its answer."""
        if key not in self._cache:

            async def ask_and_cache() -> T:
                self._cache[key] = answer = await ask()
                return answer

            return await self._requests.call(key, ask_and_cache)
        return cast(T, self._cache[key])


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _setting_path(name: str, subject: str | None) -> str:
    """Return the path of a setting of a subject, or of the registry."""
    return f"/{name}" if subject is None else f"/{name}/{_quoted(text('subject', subject))}"


def _body(schema: Schema) -> dict[str, object]:
    """Return a schema as requests carry it. Avro has no field for the type, because old registries know only Avro."""
    if not isinstance(schema, Schema):
        raise TypeError(must_be("schema", "a Schema(text, type)", schema))
    body: dict[str, object] = {"schema": schema.text}
    if schema.type != "AVRO":
        body["schemaType"] = schema.type
    if schema.references:
        body["references"] = [reference._asdict() for reference in schema.references]
    return body


def _registered(answer: dict[str, Any], schema: Schema | None) -> RegisteredSchema:
    schema_id, version, guid = _field(answer, "id", int), answer.get("version"), answer.get("guid")
    if not 0 <= schema_id <= LARGEST_ID:
        raise ProtocolError(f"the schema registry answered with the id {schema_id}; ids are from 0 to {LARGEST_ID}")
    if isinstance(guid, str) and not is_guid(guid):
        raise ProtocolError(f"the schema registry answered with a GUID that is not valid, {harmless(guid, 100)!r}")
    return RegisteredSchema(
        subject=_field(answer, "subject", str),
        schema_id=schema_id,
        schema=_schema_of(answer) if schema is None else schema,
        version=version if isinstance(version, int) else None,
        guid=guid if isinstance(guid, str) else None,
    )


def _schema_of(answer: dict[str, Any]) -> Schema:
    references = tuple(
        SchemaReference(
            _field(reference, "name", str), _field(reference, "subject", str), _field(reference, "version", int)
        )
        for reference in _list(answer.get("references") or [], dict)
    )
    kind = answer.get("schemaType") or "AVRO"
    if kind not in ("AVRO", "JSON", "PROTOBUF"):
        shown = harmless(str(kind), 100)
        raise ProtocolError(f"the schema registry answered with a schema of an unknown type, {shown!r}")
    return Schema(_field(answer, "schema", str), cast(SchemaType, kind), references)


def _dict(answer: object) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise ProtocolError(f"the schema registry must answer with an object, got {type(answer).__name__}")
    return answer


def _list(answer: object, kind: type[T]) -> list[T]:
    if not isinstance(answer, list) or not all(isinstance(item, kind) for item in answer):
        raise ProtocolError(f"the schema registry must answer with a list of {kind.__name__}")
    return answer


def _field(answer: dict[str, Any], name: str, kind: type[T]) -> T:
    value = answer.get(name)
    if not isinstance(value, kind):
        raise ProtocolError(f"the answer of the schema registry has no {name} of type {kind.__name__}")
    return value
