"""Declare Kafka messages as slotted dataclasses. Each field declares its wire type and its versions.

One class serves every version of a struct. This module only describes; ``codec`` compiles a description and a version
into an encoder and a decoder. Names, version ranges, defaults and nullability equal Kafka's own message definitions. A
conformance test compares them field by field.

To add a message, write its structs in a module of ``messages/``, then the response (``@message`` and ``Response``),
then the request (``@message`` and ``Request[TheResponse]``, named ``…Request``). Add the names to
``messages/__init__.py``. A feature that other modules ask for is declared in the class by ``since``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast, dataclass_transform, overload

MAX_VERSION = 0x7FFF
FIXED = frozenset("bhiqHI?d") | {"16s"}
"""The wire types of fixed size."""
MOST_TAGS = 1_000
"""The largest number of tagged fields of a struct. Kafka has no limit, but no message has ten. A million of them took a
second."""
BLOBS = frozenset({"bytes", "records"})
LONGEST_STRING = 0x7FFF
"""The longest string in bytes. The two-byte length of old versions allows no more, and compact strings have the same
limit."""
MISSING = dataclasses.MISSING
REQUIRED: Any = MISSING
R = TypeVar("R")
T = TypeVar("T")
Blob: TypeAlias = bytes | bytearray | memoryview

ZERO_UUID = bytes(16)
"""The topic id that means "unknown", in versions that have ids."""


class Versions(NamedTuple):
    """An inclusive range of versions. ``MAX_VERSION`` as its end means "and all later versions"."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Parse Kafka's notation: ``"3+"``, ``"1-4"``, ``"2"``."""
        first, plus, _ = text.partition("+")
        if plus:
            return cls(int(first), MAX_VERSION)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


class Spec(NamedTuple):
    """The declaration of one field.

    ``wire`` is "string", "bytes", "records", "array", "struct", or for numbers a format of the module ``struct``: "b",
    "h", "i", "q", "d", "?", unsigned "H" and "I", and "16s" for a UUID. ``item`` is an array's element (a Spec or a
    struct class) or the struct's class. A ``default`` of MISSING means that the constructor requires the field.
    ``most`` bounds the count of an array when it is decoded.
    """

    wire: str
    versions: Versions
    nullable: Versions | None = None
    default: object = MISSING
    item: Any = None
    tag: int | None = None
    ignorable: bool = False
    most: int | None = None

    def is_nullable(self, version: int) -> bool:
        """Return whether the field may be null in this version."""
        return self.nullable is not None and version in self.nullable


def _field(
    wire: str,
    versions: str = "0+",
    *,
    default: Any = REQUIRED,
    nullable: str | None = None,
    item: Any = None,
    tag: int | None = None,
    ignorable: bool = False,
    most: int | None = None,
) -> Any:
    null = None if nullable is None else Versions.parse(nullable)
    spec = Spec(wire, Versions.parse(versions), null, default, item, tag, ignorable, most)
    # The type makes a new value for each object, so a default must be an empty list or a struct of defaults.
    if isinstance(default, list) or dataclasses.is_dataclass(default):
        default_type = type(default)
        return dataclasses.field(default_factory=default_type, metadata={"spec": spec})
    return dataclasses.field(default=default, metadata={"spec": spec})


class _Fixed(Protocol[T]):
    """Declares a field of fixed size: ``int32("3+", default=-1)``."""

    def __call__(self, versions: str = ..., *, default: T = ..., tag: int | None = ..., ignorable: bool = ...) -> T: ...


class _Variable(Protocol[T]):
    """Declares a field that may be null in the versions ``nullable``: ``string("3+", nullable="5+", default=None)``."""

    @overload
    def __call__(self, versions: str = ..., *, default: T = ..., tag: int | None = ..., ignorable: bool = ...) -> T: ...
    @overload
    def __call__(
        self,
        versions: str = ...,
        *,
        nullable: str,
        default: T | None = ...,
        tag: int | None = ...,
        ignorable: bool = ...,
    ) -> T | None: ...


int8: _Fixed[int] = cast("_Fixed[int]", partial(_field, "b"))
int16: _Fixed[int] = cast("_Fixed[int]", partial(_field, "h"))
uint16: _Fixed[int] = cast("_Fixed[int]", partial(_field, "H"))
int32: _Fixed[int] = cast("_Fixed[int]", partial(_field, "i"))
int64: _Fixed[int] = cast("_Fixed[int]", partial(_field, "q"))
float64: _Fixed[float] = cast("_Fixed[float]", partial(_field, "d"))
boolean: _Fixed[bool] = cast("_Fixed[bool]", partial(_field, "?"))
uuid: _Fixed[bytes] = cast("_Fixed[bytes]", partial(_field, "16s"))
string: _Variable[str] = cast("_Variable[str]", partial(_field, "string"))
blob: _Variable[bytes] = cast("_Variable[bytes]", partial(_field, "bytes"))
record_set: _Variable[Blob] = cast("_Variable[Blob]", partial(_field, "records"))
"""A record set: a ``blob`` that is decoded as a memoryview into the frame, because it may have megabytes."""


@overload
def array(
    item: Callable[..., T] | type[T],
    versions: str = ...,
    *,
    default: list[T] = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
    most: int | None = ...,
) -> list[T]: ...
@overload
def array(
    item: Callable[..., T] | type[T],
    versions: str = ...,
    *,
    nullable: str,
    default: list[T] | None = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
    most: int | None = ...,
) -> list[T] | None: ...
def array(item: Any, versions: str = "0+", **more: Any) -> Any:
    if not isinstance(item, type):  # a field function, as in array(int32)
        item = item().metadata["spec"]
    return _field("array", versions, item=item, **more)


@overload
def nested(item: type[T], versions: str = ..., *, default: T = ..., tag: int | None = ...) -> T: ...
@overload
def nested(
    item: type[T], versions: str = ..., *, nullable: str, default: T | None = ..., tag: int | None = ...
) -> T | None: ...
def nested(item: Any, versions: str = "0+", **more: Any) -> Any:
    return _field("struct", versions, item=item, **more)


class Since(int):
    """The first version of a message that has some feature; made by ``since`` in the message's class.

    It is the version's number, so ``context.version >= FetchRequest.TOPIC_IDS`` asks whether a request may use the
    feature, and ``versions.supports(FetchRequest.TOPIC_IDS)`` whether a connection offers it.
    """

    message: type[Message]
    name: str
    kafka: str

    def __set_name__(self, owner: type[Message], name: str) -> None:
        self.message, self.name = owner, name

    @property
    def before(self) -> int:
        """The last version without the feature: ``at_most=FetchRequest.TOPIC_IDS.before``."""
        return self - 1


def since(version: int, *, kafka: str = "") -> Since:
    """Declare a feature in a message class: ``TOPIC_IDS = since(13)``.

    ``kafka`` is the first release of Kafka with that version, for errors: ``ZSTD = since(7, kafka="2.1")``.
    """
    version_constant = Since(version)
    version_constant.kafka = kafka
    return version_constant


class Struct:
    """Base of every class that the codec can encode and decode."""

    __slots__ = ()
    specs: ClassVar[dict[str, Spec]]


class Message(Struct):
    """Base of every top-level message: its versions, and the first flexible version."""

    __slots__ = ()
    api_key: ClassVar[int]
    versions: ClassVar[Versions]
    flexible: ClassVar[int]


class Response(Message):
    """Base of every response.

    ``CLIENT_THROTTLES`` is the first version in which ``throttle_time_ms`` asks the client to pause. Up to Kafka 1.1
    the broker held a throttled response back, so the pause was over when the response arrived. Since 2.0 the broker
    responds at once, stops reading from the connection, and expects the client to send nothing for that long
    (KIP-219). APIs that are younger than Kafka 2.0 always ask the client.
    """

    __slots__ = ()
    CLIENT_THROTTLES: ClassVar[Since] = since(0)

    def client_throttle_ms(self, version: int) -> int:
        """Return the milliseconds for which the client must not send; ``version`` is the response's version."""
        if version < self.CLIENT_THROTTLES:
            return 0
        return getattr(self, "throttle_time_ms", 0)


class Request(Message, Generic[R]):
    """Base of every request. ``R`` is its response."""

    __slots__ = ()
    response: ClassVar[type[Any]]


def _repr(self: Struct) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.specs)
    return f"{type(self).__qualname__}({fields})"


def _first_init(self: Struct, **values: object) -> None:
    cls = type(self)
    cls.__init__ = _compiled_init(cls)  # type: ignore[method-assign]
    cls.__init__(self, **values)


def _compiled_init(cls: type[Any]) -> Callable[..., None]:
    """Return the ``__init__`` that @dataclass would make. It is compiled when the first object is made."""
    scope: dict[str, Any] = {"MISSING": MISSING}
    parameters, lines = ["self"], ["    pass\n"]
    for field in dataclasses.fields(cls):
        name, value = field.name, field.name
        if field.default_factory is not MISSING:
            scope[f"make_{name}"] = field.default_factory
            parameters.append(f"{name}=MISSING")
            value = f"make_{name}() if {name} is MISSING else {name}"
        elif field.default is not MISSING:
            scope[f"default_{name}"] = field.default
            parameters.append(f"{name}=default_{name}")
        else:
            parameters.append(name)
        lines.append(f"    self.{name} = {value}\n")
    if len(parameters) > 1:
        parameters.insert(1, "*")
    exec(f"def __init__({', '.join(parameters)}):\n{''.join(lines)}", scope)
    init = cast("Callable[..., None]", scope["__init__"])
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _equal(self: Struct, other: object) -> bool:
    if type(other) is not type(self):
        return False
    return all(getattr(self, name) == getattr(other, name) for name in self.specs)


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        int8,
        int16,
        uint16,
        int32,
        int64,
        float64,
        boolean,
        uuid,
        string,
        blob,
        record_set,
        array,
        nested,
    ),
)
def struct(cls: type[T]) -> type[T]:
    """Make a class of field declarations a struct, which messages may contain."""
    # Shared methods, because compiling them takes nine tenths of the time that @dataclass needs for a class.
    cls.__repr__ = _repr  # type: ignore[method-assign,assignment]
    cls.__eq__ = _equal  # type: ignore[method-assign,assignment]
    cls.__init__ = _first_init  # type: ignore[method-assign,assignment]
    struct_class = dataclasses.dataclass(kw_only=True, slots=True, repr=False, eq=False, init=False)(cls)
    struct_class.specs = {f.name: f.metadata["spec"] for f in dataclasses.fields(struct_class)}  # type: ignore[attr-defined,arg-type]
    return struct_class


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        int8,
        int16,
        uint16,
        int32,
        int64,
        float64,
        boolean,
        uuid,
        string,
        blob,
        record_set,
        array,
        nested,
    ),
)
def message(*, key: int, versions: tuple[int, int], flexible: int = MAX_VERSION) -> Callable[[type[T]], type[T]]:
    """Make a class of field declarations a top-level message.

    ``key`` is the API key, -1 for a message inside a field of another message. ``versions`` are the first and the last
    supported version. ``flexible`` is the first version with compact lengths and tagged fields.
    """

    def decorate(cls: type[T]) -> type[T]:
        assert 0 <= versions[0] <= versions[1], "versions are a range, the first one not above the last"
        message_class = struct(cls)
        message_class.api_key, message_class.versions, message_class.flexible = key, Versions(*versions), flexible  # type: ignore[attr-defined]
        for base in getattr(message_class, "__orig_bases__", ()):
            if getattr(base, "__origin__", None) is Request:
                message_class.response = base.__args__[0]  # type: ignore[attr-defined]
        return message_class

    return decorate
