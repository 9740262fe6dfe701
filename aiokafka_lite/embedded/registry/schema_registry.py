"""A schema registry inside the process: a stand-in for Confluent's, for tests.

It has the part of the REST API of Confluent Platform 8 that clients and serializers use: subjects and versions, ids and
GUIDs, references, soft and permanent deletion, compatibility levels and modes. Compatibility is checked for Avro; any
JSON Schema and any Protobuf schema counts as compatible. A schema whose references do not resolve is refused.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import ssl
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import unquote

from ...arguments import whole
from ...errors import IllegalStateError
from .avro_compatibility import AvroSchema, incompatibilities
from .http_server import HttpRequest, HttpResponse, HttpServer
from .referring_schemas import check_documents, check_imports

LEVELS = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
TYPES = ("AVRO", "JSON", "PROTOBUF")


class _Refused(Exception):
    """An answer that is an error: the HTTP status, the registry's code, and the text."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.response = HttpResponse(status, {"error_code": code, "message": message})


class _Content(NamedTuple):
    """A schema as a client sends it: its text, its type, and the versions of subjects that it refers to."""

    text: str
    kind: str
    references: list[dict[str, Any]]

    def guid(self) -> str:
        """Return the GUID. Schemas that differ only in the layout of their JSON have the same GUID."""
        text = self.text if self.kind == "PROTOBUF" else json.loads(self.text)
        if self.kind == "AVRO":
            text = _short_form(text)
        identity = json.dumps([self.kind, text, self.references], sort_keys=True)
        return str(uuid.UUID(bytes=hashlib.sha256(identity.encode()).digest()[:16]))


def _short_form(schema: Any) -> Any:
    """Return an Avro schema with "int" in place of {"type": "int"}, as Java's library prints it."""
    if isinstance(schema, list):
        return [_short_form(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.keys() == {"type"}:
        return _short_form(schema["type"])
    return {key: _short_form(value) if key in _SCHEMAS_INSIDE else value for key, value in schema.items()}


_SCHEMAS_INSIDE = ("type", "items", "values", "fields")
"""The keys of an Avro schema whose values are schemas, or the fields that have them."""


@dataclass(slots=True)
class _Stored:
    """A schema with its id. Subjects that have the same schema share it."""

    schema_id: int
    content: _Content
    guid: str

    def described(self) -> dict[str, Any]:
        description: dict[str, Any] = {"schema": self.content.text, "guid": self.guid}
        if self.content.kind != "AVRO":
            description["schemaType"] = self.content.kind
        if self.content.references:
            description["references"] = self.content.references
        return description


@dataclass(slots=True)
class _Version:
    """A version of a subject."""

    number: int
    schema: _Stored
    is_deleted: bool = False


@dataclass(slots=True)
class _Subject:
    """The versions of a subject, and its own settings."""

    versions: list[_Version] = field(default_factory=list)
    level: str | None = None
    mode: str | None = None

    @property
    def active(self) -> list[_Version]:
        return [version for version in self.versions if not version.is_deleted]


@dataclass(slots=True)
class _Failures:
    """The next requests fail: how many of them, and with which status."""

    status: int
    times: int


class EmbeddedSchemaRegistry:
    """A schema registry for tests, on a free port of the loopback interface: ``async with EmbeddedSchemaRegistry()``.

    With ``username`` and ``password``, or with ``token``, requests need these credentials. ``ssl_context`` makes it
    speak https. The program under test connects to it, for example with ``SchemaRegistryClient(registry.url)``.
    """

    def __init__(
        self,
        *,
        username: str | None = None,
        password: str | None = None,
        token: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.requests: list[str] = []
        """The requests so far, such as ``"GET /schemas/ids/1"``, without their query."""
        self._scheme = "http" if ssl_context is None else "https"
        self._authorization: str | None = None if token is None else f"Bearer {token}"
        if username is not None:
            self._authorization = "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
        self._server = HttpServer(self._answer, ssl_context)
        self._failures = _Failures(0, 0)
        self._state = RegistryState()

    def __repr__(self) -> str:
        return f"<EmbeddedSchemaRegistry {self.url if self._server.is_running else 'not running'}>"

    @property
    def url(self) -> str:
        """The address for clients. Raises IllegalStateError if the registry does not run."""
        if not self._server.is_running:
            raise IllegalStateError("the embedded schema registry does not run; use it in 'async with'")
        return f"{self._scheme}://127.0.0.1:{self._server.port}"

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self._server.connections

    async def start(self) -> None:
        """Begin to listen."""
        await self._server.start()

    async def close(self) -> None:
        """Close the port and all connections. The schemas stay in this object."""
        await self._server.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def fail(self, status: int, *, times: int = 1) -> None:
        """Answer the next ``times`` requests with this HTTP status, such as 503, whatever they ask for."""
        self._server.check_process()
        self._failures = _Failures(whole("status", status, 400, 599), whole("times", times, 1))

    def _answer(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(f"{request.method} {unquote(request.path)}")
        if self._failures.times:
            self._failures.times -= 1
            return HttpResponse(self._failures.status, {"error_code": self._failures.status, "message": "injected"})
        if self._authorization is not None and request.headers.get("authorization") != self._authorization:
            return HttpResponse(HTTPStatus.UNAUTHORIZED, {"error_code": 401, "message": "Unauthorized"})
        try:
            return self._state.answer(request)
        except _Refused as refused:
            return refused.response


Route = Callable[..., object]


class RegistryState:
    """The state of a registry, and its answers. No I/O."""

    def __init__(self) -> None:
        self._schemas: dict[int, _Stored] = {}
        self._subjects: dict[str, _Subject] = {}
        self._level = "BACKWARD"
        self._mode = "READWRITE"
        self._routes: list[tuple[str, re.Pattern[str], Route]] = [
            (method, re.compile(path.replace("{}", "([^/]+)")), route)
            for method, path, route in (
                ("GET", "/subjects", self._list),
                ("GET", "/subjects/{}/versions", self._versions),
                ("POST", "/subjects/{}/versions", self._register),
                ("GET", "/subjects/{}/versions/{}", self._version),
                ("POST", "/subjects/{}", self._lookup),
                ("DELETE", "/subjects/{}", self._delete_subject),
                ("DELETE", "/subjects/{}/versions/{}", self._delete_version),
                ("GET", "/schemas/types", self._types),
                ("GET", "/schemas/ids/{}", self._by_id),
                ("GET", "/schemas/guids/{}", self._by_guid),
                ("POST", "/compatibility/subjects/{}/versions", self._check),
                ("POST", "/compatibility/subjects/{}/versions/{}", self._check),
                ("GET", "/config", self._get_level),
                ("PUT", "/config", self._put_level),
                ("GET", "/config/{}", self._get_level),
                ("PUT", "/config/{}", self._put_level),
                ("GET", "/mode", self._get_mode),
                ("PUT", "/mode", self._put_mode),
                ("GET", "/mode/{}", self._get_mode),
                ("PUT", "/mode/{}", self._put_mode),
            )
        ]

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer one request. Raises _Refused."""
        for method, pattern, route in self._routes:
            match = pattern.fullmatch(request.path)
            if match is not None and method == request.method:
                return HttpResponse(HTTPStatus.OK, route(request, *map(unquote, match.groups())))
        raise _Refused(HTTPStatus.NOT_FOUND, 404, "HTTP 404 Not Found")

    # Subjects and versions.

    def _list(self, request: HttpRequest) -> object:
        prefix = request.query.get("subjectPrefix", "")
        with_deleted = request.query.get("deleted") == "true"
        return sorted(
            name
            for name, subject in self._subjects.items()
            if name.startswith(prefix) and (subject.active or (with_deleted and subject.versions))
        )

    def _versions(self, request: HttpRequest, name: str) -> object:
        return [version.number for version in self._existing(name).active]

    def _version(self, request: HttpRequest, name: str, number: str) -> object:
        return self._described(name, self._find(self._existing(name), number))

    def _described(self, name: str, version: _Version) -> dict[str, Any]:
        return {
            "subject": name,
            "version": version.number,
            "id": version.schema.schema_id,
            **version.schema.described(),
        }

    def _register(self, request: HttpRequest, name: str) -> object:
        subject = self._subjects.setdefault(name, _Subject())
        posted = self._posted(request)
        # A schema that the subject has already changes nothing, so a read-only registry answers with its id.
        same = self._same(subject, posted)
        if same is None:
            if (subject.mode or self._mode) in ("READONLY", "READONLY_OVERRIDE"):
                raise _Refused(422, 42205, f"Subject {name} is in read-only mode")
            messages = self._incompatible(subject, posted, subject.level or self._level)
            if messages:
                problem = f"Schema being registered is incompatible with an earlier schema for subject {name!r}"
                raise _Refused(HTTPStatus.CONFLICT, 409, f"{problem}, details: {messages}")
            number = subject.versions[-1].number + 1 if subject.versions else 1
            same = _Version(number, self._stored(posted))
            subject.versions.append(same)
        return {"id": same.schema.schema_id, "version": same.number, **same.schema.described()}

    def _lookup(self, request: HttpRequest, name: str) -> object:
        subject = self._existing(name)
        same = self._same(subject, self._posted(request))
        if same is None:
            raise _Refused(HTTPStatus.NOT_FOUND, 40403, "Schema not found")
        return self._described(name, same)

    def _delete_subject(self, request: HttpRequest, name: str) -> object:
        if request.query.get("permanent") == "true":
            subject = self._subjects.get(name)
            if subject is None:
                raise _Refused(HTTPStatus.NOT_FOUND, 40401, f"Subject '{name}' not found.")
            if subject.active:
                raise _Refused(HTTPStatus.NOT_FOUND, 40405, f"Subject '{name}' was not deleted first")
            del self._subjects[name]
            return [version.number for version in subject.versions]
        versions = self._existing(name).active
        for version in versions:
            version.is_deleted = True
        return [version.number for version in versions]

    def _delete_version(self, request: HttpRequest, name: str, number: str) -> object:
        subject = self._existing(name)
        if request.query.get("permanent") == "true":
            deleted = [version for version in subject.versions if version.is_deleted and str(version.number) == number]
            if not deleted:
                raise _Refused(HTTPStatus.NOT_FOUND, 40407, f"Version {number} was not deleted first")
            version = deleted[0]
            subject.versions.remove(version)
        else:
            version = self._find(subject, number)
            version.is_deleted = True
        return version.number

    def _existing(self, name: str) -> _Subject:
        subject = self._subjects.get(name)
        if subject is None or not subject.active:
            raise _Refused(HTTPStatus.NOT_FOUND, 40401, f"Subject '{name}' not found.")
        return subject

    def _find(self, subject: _Subject, number: str) -> _Version:
        if number in ("latest", "-1"):
            return subject.active[-1]
        if not number.isdigit() or number == "0":
            raise _Refused(422, 42202, f"The specified version '{number}' is not a valid version id.")
        version = next((candidate for candidate in subject.active if candidate.number == int(number)), None)
        if version is None:
            raise _Refused(HTTPStatus.NOT_FOUND, 40402, f"Version {number} not found.")
        return version

    # Schemas.

    def _types(self, request: HttpRequest) -> object:
        return list(TYPES)

    def _by_id(self, request: HttpRequest, schema_id: str) -> object:
        schema = self._schemas.get(int(schema_id)) if schema_id.isdigit() else None
        if schema is None:
            raise _Refused(HTTPStatus.NOT_FOUND, 40403, f"Schema {schema_id} not found")
        return schema.described()

    def _by_guid(self, request: HttpRequest, guid: str) -> object:
        schema = self._with_guid(guid)
        if schema is None:
            raise _Refused(HTTPStatus.NOT_FOUND, 40403, f"Schema {guid} not found")
        return schema.described()

    def _posted(self, request: HttpRequest) -> _Content:
        """Parse and check the schema in the body of a request. Raises _Refused."""
        try:
            body = json.loads(request.body)
            text, kind = body["schema"], body.get("schemaType") or "AVRO"
            content = _Content(text, kind, list(body.get("references") or ()))
            if kind not in TYPES or not isinstance(text, str):
                raise ValueError(f"schemaType must be one of {', '.join(TYPES)}, got {kind!r}")
            if kind == "AVRO":
                AvroSchema(text, self._texts_used_by(content))
            elif kind == "JSON":
                used = {name: json.loads(document.text) for name, document in self._used_by(content).items()}
                check_documents(json.loads(text), used)
            else:
                check_imports(text, self._used_by(content))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _Refused(422, 42201, f"Invalid schema: {error}") from None
        return content

    def _used(self, reference: dict[str, Any]) -> _Stored:
        """Return the schema that a reference names. Raises ValueError if its subject does not exist."""
        subject = self._subjects.get(reference["subject"])
        if subject is None or not subject.active:
            raise ValueError(f"no schema reference found for subject {reference['subject']!r}")
        return self._find(subject, str(reference["version"])).schema

    def _used_by(self, content: _Content) -> dict[str, _Content]:
        """Return the schemas that a schema refers to, directly or not, by the names of the references.

        A schema comes after the schemas that it needs. Raises ValueError for a reference to a version that does not
        exist.
        """
        result: dict[str, _Content] = {}
        for reference in content.references:
            used = self._used(reference).content
            result = {**result, **self._used_by(used)}
            result.setdefault(str(reference["name"]), used)
        return result

    def _texts_used_by(self, content: _Content) -> list[str]:
        return [used.text for used in self._used_by(content).values()]

    def _stored(self, content: _Content) -> _Stored:
        guid = content.guid()
        stored = self._with_guid(guid)
        if stored is None:
            stored = _Stored(len(self._schemas) + 1, content, guid)
            self._schemas[stored.schema_id] = stored
        return stored

    def _with_guid(self, guid: str) -> _Stored | None:
        return next((schema for schema in self._schemas.values() if schema.guid == guid), None)

    def _same(self, subject: _Subject, content: _Content) -> _Version | None:
        guid = content.guid()
        return next((version for version in subject.active if version.schema.guid == guid), None)

    # Compatibility.

    def _check(self, request: HttpRequest, name: str, number: str | None = None) -> object:
        is_verbose = request.query.get("verbose") == "true"
        subject = self._subjects.get(name) or _Subject()
        level = subject.level or self._level
        if number is not None and (number != "latest" or subject.active):
            try:
                subject = _Subject([self._find(subject, number)])
            except LookupError:
                raise _Refused(HTTPStatus.NOT_FOUND, 40402, f"Version {number} not found.") from None
        try:
            messages = self._incompatible(subject, self._posted(request), level)
        except _Refused as refused:
            if not is_verbose:
                raise
            messages = [str(refused)]
        answer: dict[str, object] = {"is_compatible": not messages}
        if is_verbose:
            answer["messages"] = messages
        return answer

    def _incompatible(self, subject: _Subject, content: _Content, level: str) -> list[str]:
        """Return the reasons why a schema is incompatible with the versions of a subject."""
        if level == "NONE" or not subject.active:
            return []
        versions = subject.active if level.endswith("_TRANSITIVE") else subject.active[-1:]
        reasons: list[str] = []
        for version in versions:
            earlier = version.schema.content
            if earlier.kind != content.kind:
                reasons.append(f"version {version.number} has the type {earlier.kind}")
            elif content.kind == "AVRO":
                new = AvroSchema(content.text, self._texts_used_by(content))
                old = AvroSchema(earlier.text, self._texts_used_by(earlier))
                if level.startswith(("BACKWARD", "FULL")):
                    reasons += incompatibilities(new, old)
                if level.startswith(("FORWARD", "FULL")):
                    reasons += incompatibilities(old, new)
        return reasons

    # Settings.

    def _get_level(self, request: HttpRequest, name: str | None = None) -> object:
        own = None if name is None else self._subjects.get(name, _Subject()).level
        if name is not None and own is None and request.query.get("defaultToGlobal") != "true":
            raise _Refused(
                HTTPStatus.NOT_FOUND, 40408, f"Subject '{name}' does not have subject-level compatibility configured"
            )
        return {"compatibilityLevel": own or self._level}

    def _put_level(self, request: HttpRequest, name: str | None = None) -> object:
        level = _choice(request, "compatibility", LEVELS, 42203)
        if name is None:
            self._level = level
        else:
            self._subjects.setdefault(name, _Subject()).level = level
        return {"compatibility": level}

    def _get_mode(self, request: HttpRequest, name: str | None = None) -> object:
        own = None if name is None else self._subjects.get(name, _Subject()).mode
        if name is not None and own is None and request.query.get("defaultToGlobal") != "true":
            raise _Refused(HTTPStatus.NOT_FOUND, 40409, f"Subject '{name}' does not have subject-level mode configured")
        return {"mode": own or self._mode}

    def _put_mode(self, request: HttpRequest, name: str | None = None) -> object:
        mode = _choice(request, "mode", MODES, 42204)
        if name is None:
            self._mode = mode
        else:
            self._subjects.setdefault(name, _Subject()).mode = mode
        return {"mode": mode}


def _choice(request: HttpRequest, name: str, allowed: tuple[str, ...], code: int) -> str:
    try:
        value = json.loads(request.body)[name]
    except (ValueError, KeyError, TypeError):
        value = None
    if value not in allowed:
        raise _Refused(422, code, f"Invalid {name}. Valid values are {', '.join(allowed)}")
    return str(value)
