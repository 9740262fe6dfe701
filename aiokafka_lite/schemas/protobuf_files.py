"""Message classes made from the Protobuf files of a registry, for programs that do not have the code of ``protoc``.

A registry returns a file as its descriptor in base64, or as text. Text needs a compiler: ``protoc`` as the package
grpcio-tools brings it (the extra ``protoc``). It runs in a process of its own, because a file of another program must
not be able to end this one.
"""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from ..errors import ConfigurationError
from ..extras import extra
from ..types import printable
from .client import SchemaRegistryClient
from .protobuf_names import message_types
from .schema import Schema
from .serializing import check_type, referenced

_OWN_NAME = "schema.proto"
_LONGEST_COMPILATION = 20.0
"""Seconds that the compiler may take."""


class ProtobufFile:
    """A compiled file: the classes of its messages by their full names."""

    def __init__(self, schema: Schema, pool: Any) -> None:
        self._schema = schema
        self._pool = pool

    def __repr__(self) -> str:
        return f"<ProtobufFile {self.names}>"

    @property
    def names(self) -> list[str]:
        """The full names of the messages of the file that are in no other message, in their order."""
        types = message_types(self._schema.text)
        return [f"{types.package}.{message.name}".removeprefix(".") for message in types.types]

    def message_at(self, path: tuple[int, ...]) -> Any:
        """Return the class of the message at this path of the file. Raises ValueError if there is none."""
        return self.message(message_types(self._schema.text).name_at(path))

    def message(self, name: str) -> Any:
        """Return the class of a message by its full name. Raises ValueError if the file has no such message."""
        factory = extra("google.protobuf.message_factory", "protobuf")
        try:
            return factory.GetMessageClass(self._pool.FindMessageTypeByName(name))
        except KeyError:
            raise ValueError(f"the schema has no message {printable(name)}; it has {', '.join(self.names)}") from None

    def path_of(self, name: str) -> list[int]:
        """Return the path of a message in the file. Raises ValueError if there is none."""
        return list(message_types(self._schema.text).path_of(name))


async def protobuf_file(registry: SchemaRegistryClient, schema: Schema) -> ProtobufFile:
    """Compile a schema and the files that it refers to.

    Raises ConfigurationError for a file that cannot be compiled, and if the extra ``protoc`` is needed and missing.
    """
    check_type(schema, "PROTOBUF", "a file of Protobuf")
    files = {**await referenced(registry, schema), _OWN_NAME: schema}
    descriptors = {name: _descriptor(file.text, name) for name, file in files.items()}
    texts = {name: files[name].text for name, descriptor in descriptors.items() if descriptor is None}
    if texts:
        descriptors |= await _compiled({name: file.text for name, file in files.items() if name in texts}, descriptors)
    pool = extra("google.protobuf.descriptor_pool", "protobuf").DescriptorPool()
    try:
        for descriptor in descriptors.values():
            _add(pool, descriptor, descriptors)
    except TypeError as error:  # the pool's error for a file that contradicts itself
        raise ConfigurationError(f"schema must be a file of Protobuf: {error}") from None
    return ProtobufFile(schema, pool)


def _descriptor(text: str, name: str) -> Any | None:
    """Return the descriptor of a file in base64; None if the file is text."""
    descriptor_pb2 = extra("google.protobuf.descriptor_pb2", "protobuf")
    message = extra("google.protobuf.message", "protobuf")
    try:
        descriptor = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, message.DecodeError):
        return None
    descriptor.name = name
    return descriptor


async def _compiled(texts: Mapping[str, str], others: Mapping[str, Any]) -> dict[str, Any]:
    """Compile files together. ``others`` are descriptors that these files may import."""
    extra("grpc_tools.protoc", "protoc")
    descriptor_pb2 = extra("google.protobuf.descriptor_pb2", "protobuf")
    with TemporaryDirectory(prefix="aiokafka-lite-") as folder:
        for name, text in texts.items():
            _write(Path(folder), name, text)
        imported = Path(folder) / "imported.pb"
        compiled = Path(folder) / "compiled.pb"
        imports = descriptor_pb2.FileDescriptorSet(file=[file for file in others.values() if file is not None])
        imported.write_bytes(imports.SerializeToString())
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", *_includes()]
        if imports.file:
            command.append(f"--descriptor_set_in={imported}")
        command += [f"--descriptor_set_out={compiled}", *texts]
        with anyio.move_on_after(_LONGEST_COMPILATION) as scope:
            outcome = await anyio.run_process(command, check=False)
        if scope.cancelled_caught:
            raise ConfigurationError(f"protoc did not compile the schema within {_LONGEST_COMPILATION:g} s")
        if outcome.returncode:
            lines = outcome.stderr.decode(errors="replace").replace(f"{folder}/", "").strip().splitlines()
            raise ConfigurationError(f"schema must be a file of Protobuf: {printable('; '.join(lines[:3]))}")
        result = descriptor_pb2.FileDescriptorSet.FromString(compiled.read_bytes())
    return {file.name: file for file in result.file}


def _write(folder: Path, name: str, text: str) -> None:
    """Write a file for the compiler. Raises ConfigurationError for a name that leaves the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in name or name.startswith("-"):
        raise ConfigurationError(f"the name of a referenced file must be a path inside a folder, got {printable(name)}")
    target = folder.joinpath(*path.parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


def _includes() -> list[str]:
    """Return the folders of the files that every registry has: google/protobuf, and google/type if it is installed."""
    folders = []
    for module, inside in (("grpc_tools", "_proto"), ("google.type", "../..")):
        try:
            spec = find_spec(module)
        except ModuleNotFoundError:
            continue
        locations = (spec.submodule_search_locations or ()) if spec is not None else ()
        folders += [f"-I{(Path(location) / inside).resolve()}" for location in locations]
    return folders


def _add(pool: Any, descriptor: Any, descriptors: Mapping[str, Any]) -> None:
    """Add a file to the pool, after the files that it imports."""
    try:
        pool.FindFileByName(descriptor.name)
        return
    except KeyError:
        pass
    for name in descriptor.dependency:
        _add(pool, descriptors.get(name) or _built_in(name), descriptors)
    pool.Add(descriptor)


def _built_in(name: str) -> Any:
    """Return the descriptor of a file that comes with a package, such as google/protobuf/timestamp.proto."""
    if name.startswith(("google/protobuf/", "google/type/")) and name.endswith(".proto"):
        module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
        try:
            file = import_module(module).DESCRIPTOR
        except ImportError:
            pass
        else:
            descriptor = extra("google.protobuf.descriptor_pb2", "protobuf").FileDescriptorProto()
            file.CopyToProto(descriptor)
            return descriptor
    raise ConfigurationError(f"the schema imports {printable(name)}, which is neither a reference nor installed")
