"""Write the classes of ``aiokafka_lite.blocking`` from those of the asyncio client: ``python docs/make_blocking.py``.

Each blocking class has the methods of its asyncio counterpart, with the same parameters, defaults, results and
docstrings, as plain functions. ``FILES`` has the classes, and the few methods that are more than a call in the loop. A
test fails if a file is outdated.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "aiokafka_lite"
BLOCKING = PACKAGE / "blocking"
WIDTH = 120


@dataclass(frozen=True)
class Counterpart:
    """A blocking class: the module and the name of its asyncio class, its bases, and the bodies written by hand."""

    module: str
    name: str
    bases: str
    bodies: Mapping[str, str] = field(default_factory=dict)
    """The bodies of methods that do more than the usual call. None leaves a method to a base."""
    only: Sequence[str] | None = None
    """The public methods, if the asyncio class has others for the package itself."""
    without: Sequence[str] = ()
    """Methods that a base has."""
    inherits: Sequence[tuple[str, str]] = ()
    """The bases of the asyncio class, as (module, name), whose methods belong to the blocking class too."""
    internal: Sequence[str] = ()
    """Methods for other modules of the package."""
    more: str = ""
    """Methods that the asyncio class has not."""


COMPONENT = ("aio.component", "Component")
CLIENT = ("__aenter__", "__aexit__")
"""Methods that ``BlockingClient`` has."""


@dataclass(frozen=True)
class File:
    """A module of ``blocking``. ``names`` maps each name that only a body needs to its module."""

    name: str
    about: str
    classes: Sequence[Counterpart]
    names: Mapping[str, str] = field(default_factory=dict)
    imports: Sequence[str] = ()


def _family(name: str, about: str, classes: Mapping[str, str]) -> File:
    """Return a module of calls of ``Admin``. ``classes`` maps each class to its module."""
    counterparts = [Counterpart(f"admin.{module}", kind, "Blocking") for kind, module in classes.items()]
    return File(name, f"The calls of ``Admin`` about {about}.", counterparts, {"Blocking": ".wrapper"})


START = "self._begin(self._inner.start, timeout)"
NEXT = "return self._next(self._inner.__anext__, self._keep)"
NEXT_READY = "return self._next(self._inner.__anext__, self._keep, self._inner.take_ready)"

FILES = [
    File(
        "producer.py",
        "``Producer`` and its ``Transaction``, for threads without an event loop.",
        [
            Counterpart(
                "producer.record_calls",
                "RecordCalls",
                "Sending, Generic[K_contra, V_contra]",
                {
                    "send_nowait": """
                        return self._queue.add(self._inner, topic, value, key, headers, partition, timestamp)
                    """,
                    "put": """
                        return Delivery(self._queue, self._await(self._inner.put, {arguments}))
                    """,
                    "put_arrow": "return BulkDelivery(self._await(self._inner.put_arrow, {arguments}))",
                },
                internal=("acceptor",),
            ),
            Counterpart(
                "producer.producer",
                "Producer",
                "RecordCalls[K_contra, V_contra], BlockingProducer",
                {
                    "start": START,
                    "close": "check_timeout(timeout)\nself._finish(timeout)",
                    "transaction": """
                        return Transaction(self._run(self._inner.transaction, timeout=timeout), self._queue)
                    """,
                    "failures": "return Failures(self._run(self._inner.failures, max_bytes=max_bytes))",
                },
                without=CLIENT,
                inherits=[COMPONENT],
            ),
            Counterpart(
                "producer.transaction",
                "Transaction",
                "RecordCalls[K_contra, V_contra], BlockingTransaction",
                {"__aenter__": "self._enter()\nreturn self", "__aexit__": "self._exit(kind, error, traceback)"},
            ),
            Counterpart("producer.failures", "Failures", "Blocking", only=("__aiter__", "__anext__")),
        ],
        {
            "Blocking": ".wrapper",
            "BlockingProducer": ".producing",
            "BlockingTransaction": ".producing",
            "BulkDelivery": ".producing",
            "Delivery": ".sending",
            "Generic": "typing",
            "K_contra": "..types",
            "Sending": ".producing",
            "V_contra": "..types",
            "check_timeout": "..arguments",
        },
    ),
    File(
        "consumer.py",
        "``Consumer`` and what it reads with, for threads without an event loop.",
        [
            Counterpart(
                "consumer.consumer",
                "Consumer",
                "BlockingConsumer[K, V]",
                {
                    "__init__": """
                        super().__init__(
                            AsyncConsumer(
                                bootstrap_servers,
                                topics=topics,
                                group_id=group_id,
                                strategies=strategies,
                                listener=listener_of(listener),
                                {arguments from key_deserializer}
                            )
                        )
                    """,
                    "start": START,
                    "close": "check_timeout(timeout)\nself._end(self._inner.close, timeout, leave_group=leave_group)",
                    "__aiter__": "return self._iterate()",
                    "__anext__": "return self._next_record()",
                    "poll": "return self._poll({arguments})",
                    "partition": """
                        return PartitionReader(self._run(self._inner.partition, {arguments}), self._seek_back)
                    """,
                    "batches": "return Batches(self._run(self._inner.batches, {arguments}), self._seek_back)",
                    "read_until": "return BoundedRead(self._run(self._inner.read_until, {arguments}), self._seek_back)",
                    "offsets": 'return Offsets(self._read("offsets"))',
                    "add_listener": "self._run(self._inner.add_listener, checked_listener(listener))",
                },
                without=CLIENT,
                internal=("take_ready",),
                inherits=[("consumer.position_calls", "PositionCalls"), COMPONENT],
            ),
            Counterpart(
                "consumer.iteration",
                "Batches",
                "BatchIteration",
                {
                    "__anext__": NEXT_READY,
                    "to_arrow": "return ArrowBatches(self._run(self._inner.to_arrow, {arguments}), self._seek_back)",
                },
                internal=("take_ready",),
            ),
            Counterpart(
                "consumer.iteration",
                "ArrowBatches",
                "ArrowIteration",
                {"__anext__": NEXT_READY},
                internal=("start", "take_ready"),
            ),
            Counterpart("consumer.bounded", "BoundedRead", "ConsumerIteration[K, V]", {"__anext__": NEXT}),
            Counterpart(
                "consumer.iteration",
                "PartitionReader",
                "ReaderIteration[K, V]",
                {
                    "__anext__": "return self._next_record()",
                    "poll": "return self._take(max_records, self._inner.poll, {arguments})",
                },
                internal=("decoded",),
            ),
        ],
        {
            "ArrowIteration": ".reading",
            "BatchIteration": ".reading",
            "BlockingConsumer": ".reading",
            "ConsumerIteration": ".reading",
            "ReaderIteration": ".reading",
            "K": "..types",
            "Offsets": ".session",
            "RebalanceListener": ".callbacks",
            "RecordIteration": ".reading",
            "V": "..types",
            "check_timeout": "..arguments",
            "checked_listener": ".callbacks",
            "listener_of": ".callbacks",
        },
    ),
    File(
        "session.py",
        "What the callbacks of a group get, for threads without an event loop.",
        [
            Counterpart(
                "group.offsets",
                "Offsets",
                "Blocking",
                only=("auto_commit", "owned", "mark", "reset", "annotate", "commit", "fetch"),
            ),
            Counterpart(
                "consumer.group.session",
                "ConsumerGroupSession",
                "Blocking",
                {"offsets": 'return Offsets(self._read("offsets"))'},
                internal=("has_outdated",),
            ),
            Counterpart(
                "consumer.group.claim",
                "Claim",
                "PartitionIteration[K, V]",
                {"__anext__": "return self._next_record()"},
                internal=("decoded",),
            ),
            Counterpart("consumer.group.rebalance", "RebalanceHandle", "Blocking"),
        ],
        {
            "Blocking": ".wrapper",
            "K": "..types",
            "PartitionIteration": ".reading",
            "V": "..types",
        },
    ),
    File(
        "group.py",
        "``ConsumerGroup``, ``Workers`` and what handlers get, for threads without an event loop.",
        [
            Counterpart(
                "consumer.group.consumer_group",
                "ConsumerGroup",
                "Blocking, Generic[K, V]",
                {
                    "consume": """
                        check_handler(handler)
                        adapted: AsyncHandler[K, V]
                        adapted = handler.handler() if isinstance(handler, Workers) else HandlerInThreads(handler)
                        self._await_kept(self._inner.consume, topics, adapted)
                    """,
                    "errors": "return GroupErrors(self._run(self._inner.errors))",
                    "__aenter__": "return self",
                },
            ),
            Counterpart("consumer.group.consumer_group", "GroupErrors", "Blocking"),
            Counterpart(
                "processing.workers",
                "Workers",
                "ConsumerGroupHandler[K, V], Blocking",
                {
                    "__init__": """
                        settings: dict[str, Any] = {"batch_size": batch_size, "batch_timeout": batch_timeout}
                        workers: AsyncWorkers[K, V] = AsyncWorkers(
                            handle,
                            concurrency=concurrency,
                            order=order,
                            executor=executor,
                            rules=rules,
                            breaker=breaker,
                            producer=asynchronous(producer),
                            timeout=timeout,
                            max_pending=max_pending,
                            clock=clock,
                            **settings,
                        )
                        Blocking.__init__(self, workers)
                    """,
                },
                internal=("setup", "consume_claim", "before_commit"),
                more="""
                    def handler(self) -> AsyncHandler[K, V]:
                        \"""Return what the asyncio group calls.\"""
                        return self._inner
                """,
            ),
        ],
        {
            "Any": "typing",
            "Blocking": ".wrapper",
            "ConsumerGroupHandler": ".callbacks",
            "Generic": "typing",
            "HandlerInThreads": ".callbacks",
            "K": "..types",
            "Producer": ".producer",
            "V": "..types",
            "asynchronous": ".producing",
            "check_handler": ".callbacks",
            "overload": "typing",
        },
        ["from ..consumer import ConsumerGroupHandler as AsyncHandler"],
    ),
    File(
        "share.py",
        "``ShareConsumer``, for threads without an event loop.",
        [
            Counterpart(
                "share.consumer",
                "ShareConsumer",
                "BlockingShareConsumer[K, V]",
                {
                    "start": START,
                    "close": "check_timeout(timeout)\nself._end(self._inner.close, timeout)",
                    "__anext__": "return self._take_next(self._inner.__anext__)",
                    "poll": "return self._take(max_records, self._inner.poll, {arguments})",
                },
                without=CLIENT,
                inherits=[COMPONENT],
            ),
        ],
        {"BlockingShareConsumer": ".reading", "K": "..types", "V": "..types", "check_timeout": "..arguments"},
    ),
    File(
        "admin.py",
        "``Admin``, for threads without an event loop.",
        [
            Counterpart(
                "admin.admin",
                "Admin",
                "BlockingClient",
                {"start": START, "close": "check_timeout(timeout)\nself._end(self._inner.close, timeout)"},
                without=CLIENT,
                inherits=[COMPONENT],
            ),
        ],
        {
            "BlockingClient": ".wrapper",
            "check_timeout": "..arguments",
            **dict.fromkeys(("Configs", "OffsetsOfPartitions", "Records", "Topics"), ".admin_topics"),
            **dict.fromkeys(("Groups", "ShareGroups"), ".admin_groups"),
            **dict.fromkeys(("Cluster", "Leaders", "LogDirs", "Quotas", "Reassignments"), ".admin_cluster"),
            **dict.fromkeys(("Acls", "Tokens", "Transactions", "Users"), ".admin_access"),
        },
    ),
    _family(
        "admin_topics.py",
        "topics, configurations, records and offsets",
        {"Topics": "topics", "Configs": "configs", "Records": "records", "OffsetsOfPartitions": "offsets"},
    ),
    _family("admin_groups.py", "groups", {"Groups": "groups", "ShareGroups": "share_groups"}),
    _family(
        "admin_cluster.py",
        "the cluster and its brokers",
        {
            "Cluster": "cluster",
            "Leaders": "leaders",
            "Reassignments": "leaders",
            "LogDirs": "log_dirs",
            "Quotas": "quotas",
        },
    ),
    _family(
        "admin_access.py",
        "permissions, users, tokens and transactions",
        {"Acls": "acls", "Users": "users", "Tokens": "tokens", "Transactions": "transactions"},
    ),
]

WORDS = [
    (r"Await it for", "Call ``wait`` for"),
    (r"``async with``", "``with``"),
    (r"async with", "with"),
    (r"async for", "for"),
    (r"(^|\s)Call (it|them) in the event loop\.", ""),
    (r"(too)?, in the event loop", r"\1"),
    (r"async def bill", "def bill"),
    (r"await group", "group"),
    (r"until cancelled, closed", "until interrupted, closed"),
    (r"for the task that runs", "for the thread that runs"),
    (r"any task may", "any thread may"),
    (r"wait for a record is cancelled", "wait for a record is interrupted"),
    (r"; call it in the event loop\.", "."),
    (r"from any task of the event loop", "from any thread"),
    (r"several consumers may run in one event loop", "a program may have several consumers"),
    (r"needs no event loop and does no I/O", "does no I/O"),
    (r"any number of tasks may call", "any number of threads may call"),
    (r"One task", "One thread"),
    (r"another task", "another thread"),
    (r"([Ii])f the call is cancelled", r"\1f the call is interrupted"),
    (r"([Ii])f it is cancelled", r"\1f it is interrupted"),
    (r"When cancelled", "When interrupted"),
    (r"Cancelling the call", "Interrupting the call"),
    (r"([Aa]) cancelled (read|wait|call)", r"\1n interrupted \2"),
    (r"(a|by|after a) cancellation", r"an interrupt"),
    (r"``await (\w)", r"``\1"),
]
"""What a docstring of the asyncio client says, and what it means for a thread."""


def main() -> None:
    for file in FILES:
        (BLOCKING / file.name).write_text(source(file), encoding="utf-8")


def source(file: File) -> str:
    """Return the text of a module."""
    imports = _Imports(file)
    classes = [_Class(counterpart, imports).text() for counterpart in file.classes]
    head = (
        f'"""{file.about}\n\nWritten by docs/make_blocking.py from the asyncio classes, which have the same calls.\n"""'
    )
    text = "\n\n".join([head, "from __future__ import annotations", imports.text(), *classes])
    for command in (["check", "--quiet", "--fix", "--select", "I,F401"], ["format", "--quiet"]):
        ruff = [str(Path(sys.executable).with_name("ruff")), *command, "--stdin-filename", str(BLOCKING / file.name)]
        text = subprocess.run([*ruff, "-"], input=text, capture_output=True, check=True, text=True, cwd=ROOT).stdout
    return text


class _Imports:
    """The imports of a module: of its own, and those that the copied signatures need."""

    def __init__(self, file: File) -> None:
        self._here = {counterpart.name for counterpart in file.classes}
        self.blocking: set[str] = self._here.union(
            name for name, home in file.names.items() if home.startswith(".admin")
        )
        """The classes of the module, and of the modules that it uses, whose objects have an asyncio object."""
        self._file = file
        self._names: dict[str, str] = {}
        self._for_types: dict[str, str] = {}
        self._asynchronous: dict[str, str] = {}

    def take_arguments(self, module: str, arguments: ast.arguments) -> None:
        """Import what the parameters of a function name, in a module of the package."""
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.kwarg]:
            if argument is not None and argument.annotation is not None:
                self.take(module, argument.annotation)
        for default in [*arguments.defaults, *arguments.kw_defaults]:
            if default is not None:
                self._names.update(self._homes_of(module, default))

    def take(self, module: str, annotation: ast.expr) -> None:
        """Import what an annotation names, for type checkers: it may be of a package that is not installed."""
        self._for_types.update(self._homes_of(module, annotation))

    def _homes_of(self, module: str, part: ast.expr) -> dict[str, str]:
        homes = _homes(module)
        names = {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}
        return {name: homes[name] for name in names - self._here - self._file.names.keys() if name in homes}

    def need(self, name: str, home: str) -> None:
        """Import a name that the code uses."""
        self._names[name] = f"from {home} import"

    def add(self, name: str, home: str) -> None:
        """Import a name of a module outside of the package."""
        self._for_types[name] = f"from {home} import"

    def asynchronous(self, counterpart: Counterpart) -> str:
        """Import the asyncio class under another name, and return that name."""
        alias = f"Async{counterpart.name}"
        self._asynchronous[alias] = f"from ..{counterpart.module} import {counterpart.name} as {alias}"
        return alias

    def text(self) -> str:
        names = {**self._names, **{name: f"from {home} import" for name, home in self._file.names.items()}}
        lines = [f"{home} {name}" for name, home in sorted(names.items())]
        for_types = [f"    {home} {name}" for name, home in sorted(self._for_types.items()) if name not in names]
        checking = ["from typing import TYPE_CHECKING", "if TYPE_CHECKING:", *for_types] if for_types else []
        return "\n".join([*lines, *self._asynchronous.values(), *self._file.imports, *checking])


class _Class:
    """The text of one class."""

    def __init__(self, counterpart: Counterpart, imports: _Imports) -> None:
        self._counterpart = counterpart
        self._imports = imports

    def text(self) -> str:
        counterpart = self._counterpart
        definition = _definition(counterpart.module, counterpart.name)
        alias = self._imports.asynchronous(counterpart)
        parameters = _type_parameters(counterpart.bases)
        lines = [f"class {counterpart.name}({counterpart.bases}):", *_docstring(definition, _note(counterpart.name))]
        lines += ["", f"    _inner: {alias}{parameters}"]
        for name in _named_elsewhere(definition):
            self._imports.need(name, "..method_names")
            self._imports.need("named_elsewhere", ".wrapper")
            lines += ["", "    if not TYPE_CHECKING:", f"        __getattr__ = named_elsewhere({name})"]
        done: set[str] = set()
        for module, name in [(counterpart.module, counterpart.name), *counterpart.inherits]:
            for method in _definition(module, name).body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and self._is_wanted(method, done):
                    if not _is(method, "overload"):
                        done.add(method.name)
                    lines += ["", *self._method(module, method, alias)]
        if counterpart.more:
            lines += ["", *(line[4:] for line in _indented(counterpart.more))]
        return "\n".join(lines)

    def _is_wanted(self, method: ast.FunctionDef | ast.AsyncFunctionDef, done: set[str]) -> bool:
        name, counterpart = method.name, self._counterpart
        if name in (*done, *counterpart.without, *counterpart.internal):
            return False
        if counterpart.only is not None:
            return name in counterpart.only
        if name == "__init__":
            return name in counterpart.bodies or "Unpack" in ast.unparse(method.args)
        return not name.startswith("_") or name in ("__aenter__", "__aexit__", "__aiter__", "__anext__")

    def _method(self, module: str, method: ast.FunctionDef | ast.AsyncFunctionDef, alias: str) -> Iterator[str]:
        self._imports.take_arguments(module, method.args)
        if method.returns is not None:
            self._imports.take(module, method.returns)
        returns = "None" if method.returns is None else ast.unparse(method.returns)
        name = re.sub("^__a(iter|next|enter|exit)__$", r"__\1__", method.name)
        for decorator in ("property", "overload"):
            if _is(method, decorator):
                yield f"    @{decorator}"
        if method.name == "__aiter__" and method.name not in self._counterpart.bodies:
            returns = "Self"
            self._imports.add("Self", "typing")
        yield f"    def {name}({ast.unparse(method.args)}) -> {returns}:"
        if _is(method, "overload"):
            yield "        ..."
            return
        yield from _docstring(method, indent="        ")
        body = self._counterpart.bodies.get(method.name)
        if body is None:
            body = self._body(method, alias, returns)
        arguments = list(_arguments(method.args))
        body = body.replace("{arguments}", ", ".join(arguments))
        for first in re.findall(r"{arguments from (\w+)}", body):
            rest = arguments[arguments.index(f"{first}={first}") :]
            body = body.replace(f"{{arguments from {first}}}", ", ".join(rest))
        yield from _indented(body)
        if method.name == "__init__":
            yield from self._attributes(module, method)

    def _attributes(self, module: str, method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
        """Yield the blocking forms of a client's public attributes."""
        for statement in method.body:
            match statement:
                case ast.AnnAssign(ast.Attribute(ast.Name("self"), str(name)), annotation) if name[0] != "_":
                    kind = ast.unparse(annotation)
                    self._imports.take(module, annotation)
                    value = f"self._inner.{name}"
                    value = f"{kind}({value})" if kind in self._imports.blocking else value
                    yield f"        self.{name}: {kind} = {value}"

    def _body(self, method: ast.FunctionDef | ast.AsyncFunctionDef, alias: str, returns: str) -> str:
        arguments = ", ".join(_arguments(method.args))
        match method.name:
            case "__init__":
                return f"super().__init__({alias}({arguments}))"
            case "__aiter__":
                return "self._run(self._inner.__aiter__)\nreturn self"
            case "__anext__":
                return "return self._next(self._inner.__anext__)"
            case "__aenter__":
                return "self._await(self._inner.__aenter__)\nreturn self"
        if _is(method, "property"):
            return f'value: {returns} = self._read("{method.name}")\nreturn value'
        runner = "_await" if isinstance(method, ast.AsyncFunctionDef) else "_run"
        call = f"self.{runner}({', '.join(filter(None, [f'self._inner.{method.name}', arguments]))})"
        return call if returns == "None" else f"return {call}"


def _named_elsewhere(definition: ast.ClassDef) -> Iterator[str]:
    """Yield the table of the names that a class has in other clients."""
    for node in ast.walk(definition):
        match node:
            case ast.Call(ast.Name("named_elsewhere"), [ast.Name(table)]):
                yield table


def _is(method: ast.FunctionDef | ast.AsyncFunctionDef, decorator: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == decorator for node in method.decorator_list)


def _arguments(arguments: ast.arguments) -> Iterator[str]:
    """Yield the arguments with which a wrapper calls the same function."""
    for argument in [*arguments.posonlyargs, *arguments.args]:
        if argument.arg != "self":
            yield argument.arg
    for argument in arguments.kwonlyargs:
        yield f"{argument.arg}={argument.arg}"
    if arguments.kwarg is not None:
        yield f"**{arguments.kwarg.arg}"


def _type_parameters(bases: str) -> str:
    parameters = re.search(r"\[.*\]", bases)
    return parameters[0] if parameters else ""


def _note(name: str) -> str:
    public = name in ("Admin", "Consumer", "ConsumerGroup", "Producer", "ShareConsumer", "Workers")
    return f"This is ``aiokafka_lite.{name}`` for threads without an event loop: its calls wait." if public else ""


def _docstring(
    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, note: str = "", indent: str = "    "
) -> list[str]:
    text = ast.get_docstring(node)
    if text is None:
        return []
    summary, *rest = [_paragraph(paragraph, WIDTH - len(indent)) for paragraph in f'"""{text}'.split("\n\n")]
    lines = "\n\n".join([summary, *filter(None, [note, *rest])]).split("\n")
    lines[-1:] = [f'{lines[-1]}"""'] if len(lines) == 1 and len(indent + lines[0]) <= WIDTH - 3 else [lines[-1], '"""']
    return [indent + line if line else "" for line in lines]


def _paragraph(text: str, width: int) -> str:
    """Return a paragraph in the words of this package. Lists and examples keep their lines."""
    is_prose = not re.search(r"^( *-|    |::)", text, re.MULTILINE)
    if is_prose:
        text = " ".join(text.split())
    for words, replacement in WORDS:
        text = re.sub(words.replace(" ", r"\s+"), replacement, text)
    return textwrap.fill(text, width, break_on_hyphens=False, break_long_words=False) if is_prose else text


def _indented(body: str) -> list[str]:
    lines = body.strip("\n").split("\n")
    margin = len(lines[0]) - len(lines[0].lstrip())
    return ["        " + line[margin:] for line in lines if line.strip()]


def _path(module: str) -> Path:
    path = PACKAGE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _definition(module: str, name: str) -> ast.ClassDef:
    for node in ast.parse(_path(module).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
    raise LookupError(f"{module} has no class {name}")


def _homes(module: str) -> dict[str, str]:
    """Return where a module of the package has each of its names from, as a blocking module imports it."""
    tree = ast.parse(_path(module).read_text(encoding="utf-8"))
    package = module.split(".") if _path(module).name == "__init__.py" else module.split(".")[:-1]
    homes: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1]
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                homes[alias.asname or alias.name] = (
                    f"from {'..' * bool(node.level)}{source if node.level else node.module} import"
                )
        elif isinstance(node, ast.Import):
            homes.update(
                {
                    alias.asname or alias.name: f"import {alias.name} as" if alias.asname else "import"
                    for alias in node.names
                }
            )
    for node in tree.body:
        names: list[str] = []
        if isinstance(node, ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        homes.update(dict.fromkeys(names, f"from ..{module} import"))
    return homes


if __name__ == "__main__":
    main()
