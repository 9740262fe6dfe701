"""Resolves the names of an Avro schema: one schema without references, in which each name is full.

As Java's ``AvroSchema`` does, the referenced schemas are parsed first, and all their types are known in the schema that
refers to them: also a type that a referenced schema defines inside another type. The names of the references do not
count. A name without a namespace means a type of the surrounding namespace, and otherwise a type without a namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})

_NO_NAMESPACE = "_"
"""The namespace of types without one beside types with one: fastavro looks up a name in the surrounding namespace."""


def resolved(schema: Any, referenced: Iterable[Any] = ()) -> Any:
    """Copy the parsed schema, with each definition at the first place that uses it.

    ``referenced`` are the parsed schemas that it refers to, directly or not. Raises ValueError.
    """
    definitions = _Definitions()
    for reference in referenced:
        definitions.add(reference, "")
    definitions.add(schema, "")
    return definitions.inline(schema, "", set(), lambda name: name)


def for_fastavro(schema: Any) -> Any:
    """Rename the types of a resolved schema so that fastavro can look them up."""
    names = names_of(schema)
    if all("." in name for name in names) or not any("." in name for name in names):
        return schema
    return renamed(schema, lambda name: name if "." in name else f"{_NO_NAMESPACE}.{name}")


def renamed(schema: Any, name_of: Callable[[str], str]) -> Any:
    """Rename the types of a resolved schema."""
    definitions = _Definitions()
    definitions.add(schema, "")
    return definitions.inline(schema, "", set(), name_of)


def names_of(schema: Any) -> list[str]:
    """Return the full names of the types that a resolved schema defines."""
    definitions = _Definitions()
    definitions.add(schema, "")
    return [name for name, _ in definitions]


def full_name(schema: Mapping[str, Any], namespace: str) -> str:
    """Return the full name of a record, enum or fixed. Raises ValueError if it has none."""
    name = schema.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"the {schema['type']} has no name")
    space = schema.get("namespace", namespace)
    if space is not None and not isinstance(space, str):
        raise ValueError(f"the namespace of {name} must be a str")
    return name if "." in name or not space else f"{space}.{name}"


class _Definitions:
    """The named types of a schema and of the schemas that it refers to, by full name."""

    def __init__(self) -> None:
        self._types: dict[str, Mapping[str, Any]] = {}

    def __iter__(self) -> Any:
        return iter(self._types.items())

    def add(self, schema: Any, namespace: str) -> None:
        """Add the types that a schema defines. Raises ValueError for two definitions of a name."""
        if isinstance(schema, list):
            for branch in schema:
                self.add(branch, namespace)
        elif isinstance(schema, Mapping):
            kind = schema.get("type")
            if isinstance(kind, list | Mapping):
                self.add(kind, namespace)
            elif kind in NAMED:
                self._add_named(schema, namespace)
            elif kind == "array":
                self.add(schema.get("items"), namespace)
            elif kind == "map":
                self.add(schema.get("values"), namespace)

    def _add_named(self, schema: Mapping[str, Any], namespace: str) -> None:
        name = full_name(schema, namespace)
        if self._types.setdefault(name, schema) != schema:
            raise ValueError(f"the type {name!r} is defined twice")
        for field in schema.get("fields", ()):
            self.add(field.get("type"), name.rpartition(".")[0])

    def inline(self, schema: Any, namespace: str, defined: set[str], name_of: Callable[[str], str]) -> Any:
        """Return the schema with its definitions in it. ``defined`` are the types whose definition came before."""
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return schema
            name = self._find(schema, namespace)
            return name_of(name) if name in defined else self._inlined_definition(name, namespace, defined, name_of)
        if isinstance(schema, list):
            return [self.inline(branch, namespace, defined, name_of) for branch in schema]
        if not isinstance(schema, Mapping) or "type" not in schema:
            raise ValueError(f"a schema must be a name, a list or an object with a type, got {str(schema)[:80]}")
        kind = schema["type"]
        if isinstance(kind, list | Mapping):
            return self.inline(kind, namespace, defined, name_of)
        if kind in NAMED:
            name = full_name(schema, namespace)
            return name_of(name) if name in defined else self._inlined_definition(name, namespace, defined, name_of)
        if kind == "array":
            return {**schema, "items": self.inline(schema.get("items"), namespace, defined, name_of)}
        if kind == "map":
            return {**schema, "values": self.inline(schema.get("values"), namespace, defined, name_of)}
        if kind in PRIMITIVES:
            return schema if len(schema) > 1 else kind
        return self.inline(kind, namespace, defined, name_of)

    def _inlined_definition(self, name: str, surrounding: str, defined: set[str], name_of: Callable[[str], str]) -> Any:
        """Return a definition with the types of its fields inlined, and add its name to ``defined``."""
        defined.add(name)
        definition = dict(self._types[name])
        definition.pop("namespace", None)
        definition["name"] = name_of(name)
        if surrounding and "." not in definition["name"]:
            definition["namespace"] = ""  # or it would be a type of the surrounding namespace
        if definition["type"] in ("record", "error"):
            namespace = name.rpartition(".")[0]
            definition["fields"] = [
                {**field, "type": self.inline(field.get("type"), namespace, defined, name_of)}
                for field in definition["fields"]
            ]
        return definition

    def _find(self, name: str, namespace: str) -> str:
        surrounding = name if "." in name or not namespace else f"{namespace}.{name}"
        for full in (surrounding, name):
            if full in self._types:
                return full
        raise ValueError(f"the type {name!r} is not defined")
