"""The grammar checks of ``make lint``: docstrings begin with a verb, variables are nouns, and signatures are short.

The checks read syntax trees only; they import nothing of what they check. Run them as
``python -m tests.grammar PATH...``: one line for each finding, a count for each kind, and exit code 1 if there is any.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

MAX_ATTRIBUTES = 20
"""Attributes that an instance of a class may have. Frozen dataclasses may have more: they are settings or snapshots."""

MAX_PARAMETERS = 8
"""Parameters that a function may have, without ``self`` or ``cls``. Constructors and CLI commands may have more."""


LARGE = {
    "ProducerBatch": "its attributes are read once or more per record, and a second object would cost a call",
    "encode_batch": "the fields of a batch header, from compiled code",
    "encode_header": "the fields of a batch header, from compiled code",
    "find_fields": "the signature of a function in C",
    "append_lists": "the signature of a function in C",
    "append_rows": "the signature of a function in C",
    "Fixture": "a client of each kind, and what its calls take",
}
"""Classes and functions that are larger for a reason."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


STAND_INS = _words("""each given made found wanted known held left asked taken""")
"""Words that stand for a thing without naming it."""

VERBS = _words(
    """
abort accept acknowledge acquire act activate add adjust admit adopt advance aggregate agree align allocate allow
alter annotate announce answer append apply archive arrange ask assemble assert assign assume attach authenticate
authorize await back balance become begin bind block borrow bound break bring broadcast buffer build bundle cache
calculate call cancel cap capture carry catch change charge check choose claim classify clean clear clip clone close
collapse collect combine commit compact compare compile complete compress compute concatenate configure confirm
connect construct consult consume contain continue convert copy correct count cover crash create cut cycle
deactivate decide declare decode decompress decorate decrease decrypt default defer define delay delegate delete
deliver demand deny deregister derive describe deserialize destroy detach detect determine disable discard
disconnect dispatch display distribute divide do download drain draw drop dump duplicate elect emit empty enable
encode encrypt end enforce enlarge enqueue ensure enter enumerate erase escape establish estimate evaluate examine
exchange exclude execute exercise exit expand expect expire explain export expose extend extract fail feed fence
fetch fill filter finalize find finish fire fit flip flush fold follow forbid force forget fork format forward free
freeze fulfil gather generate get give grant group grow guard guess handle hash heal hide hold host identify ignore
implement import include increase increment indent indicate infer inherit initialize inject insert inspect install
intercept interpret interrupt introduce invalidate invoke issue iterate join jump keep kill label lay leave lend let
lift limit link list listen load locate lock log look loop lose lower make map mark match measure meet merge mirror mock
monitor mount move name narrow negotiate normalize note notify obey observe obtain occupy offer open order override
overwrite owe own pack pad parse pass patch pause pay peek perform persist pick place plan play poll pop postpone
predict prefer prefix prepare preserve prevent print process produce profile promise promote propagate propose
protect prove provide publish pull push put quantize query queue quote raise randomize read reap rearrange rebuild
recall receive recompute reconcile reconnect record recover recreate redirect redraw reduce refer refill refresh
refuse register reject release reload remember remind remove rename render renew reopen repair repeat replace replay
replicate reply report represent reproduce request require reread reschedule resend reserve reset resolve respond
restart restore restrict resume retain retire retrieve retry return reuse reverse revert revoke rewind rewrite roll
rotate round route run sample save say scale scan schedule seal search see seed seek select send separate serialize
serve set settle shift shorten show shrink shuffle shut sign signal simulate skip sleep slice solve sort spawn spell
split spread stamp start state stay steal step stop store stream strip submit subscribe substitute subtract succeed
suggest sum summarize supply support suppress suspend swap switch synchronize tag take tear tell terminate test
throttle throw tick time toggle touch trace track transfer transform translate traverse trigger trim truncate trust
try turn type unblock undo unfreeze unify unlock unpack unregister unsubscribe unwrap update upgrade upload use
validate verify visit wait wake walk warn watch weigh widen wipe withdraw work wrap write yield zero
"""
)
"""Base forms of the verbs that a docstring may begin with. ``is_verb`` derives the third person."""

NOUNS = _words(
    """
answer ask block buffer cache call change charge check claim commit copy count crash cut cycle default delay demand
display drop dump end exchange exit export fence fetch fill filter find flush fold force fork format group guard guess
handle hash host import join jump label limit link list load lock log look loop map mark match measure move name note
offer order own patch pause place plan play poll prefix print process produce profile promise query queue quote read
record refill release repeat replay reply report request reserve reset restart retry rewrite roll round route run sample
scale scan schedule seal search seed set shift show sign signal slice sort split spread stamp start state step stop
store stream sum supply support switch tag test throw tick time touch trace track transfer trust try turn type update
upgrade upload use visit wait walk watch work wrap write yield
"""
)
"""Verbs whose third person is also a plural: "Records the offset" has a verb, "Records of the batch" has none."""

ADVERBS = _words("also always either neither never not only")
"""Adverbs that may stand before the verb, beside those that end in -ly."""

NOUN_SIGNS = _words("are has have is of per was were")
"""Words that make a noun of a word before them: "Start of the range"."""

DETERMINERS = _words(
    """a all an another any both each every how it its itself no none nothing one the their them these this those two
    what whether which"""
)
"""Words that begin an object, and so make a verb of a word before them that may also be a plural."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A place that breaks a rule. ``kind`` is the rule's name, by which findings are counted."""

    path: str
    line: int
    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def main(arguments: Sequence[str]) -> int:
    """Print the findings below the given paths, and return the exit code."""
    report = findings(map(Path, arguments))
    counts = Counter(finding.kind for finding in report)
    sys.stdout.writelines(f"{finding}\n" for finding in report)
    sys.stdout.writelines(f"{kind}: {count}\n" for kind, count in sorted(counts.items()))
    return int(bool(report))


def findings(paths: Iterable[Path]) -> list[Finding]:
    """Return all findings in files and in directories, sorted by path and line."""
    files = {file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])}
    return sorted(finding for file in files for finding in _file_findings(file))


def _file_findings(file: Path) -> Iterator[Finding]:
    path = file.as_posix()
    tree = ast.parse(file.read_text(encoding="utf-8"), path)
    yield from docstring_findings(tree, path)
    yield from name_findings(tree, path)
    yield from size_findings(tree, path)


# Docstrings


def docstring_findings(tree: ast.Module, path: str) -> Iterator[Finding]:
    """Yield a finding for each docstring of a function that does not begin with a verb."""
    for function in _functions(tree):
        docstring = ast.get_docstring(function)
        if docstring and not _may_be_a_claim(function) and not begins_with_verb(docstring):
            first = docstring.split()[0]
            message = (
                f'docstring of {function.name} begins with "{first}": begin with a verb ("Return ..."); '
                "is it a verb? add it to VERBS in tests/grammar.py"
            )
            yield Finding(path, function.lineno, "docstring", message)


def begins_with_verb(docstring: str) -> bool:
    """Return whether the docstring begins with a verb in the imperative or the third person.

    One adverb may come first: "Never mark the records".
    """
    words = [_plain(word) for word in docstring.split()]
    if words[0] in ADVERBS or (words[0].endswith("ly") and words[0] not in VERBS):
        del words[0]
    # After a comma, words may stand between the verbs: "Connect, and as a member wait for partitions".
    has_pause = docstring.split()[0].endswith(",")
    match words:
        case [verb, "and" | "or", other, *_] if not has_pause:
            # "Read and return the header" has two verbs, "Name and value" has none.
            return is_verb(verb) and is_verb(other)
        case [verb, following, *_]:
            return is_verb(verb, following)
        case [verb]:
            return is_verb(verb)
    return False


def is_verb(word: str, following: str = "") -> bool:
    """Return whether a lower-case word is a verb before the word ``following``, which is empty at the end."""
    if following in NOUN_SIGNS:
        return False
    if word in VERBS:
        return True
    base = next((base for base in _bases(word) if base in VERBS), None)
    if base in NOUNS:
        return following in DETERMINERS or following.startswith("`")
    return base is not None


def _bases(word: str) -> Iterator[str]:
    """Yield what may be the base form of a verb in the third person."""
    if word.endswith("s"):
        yield word[:-1]
    if word.endswith(("ses", "xes", "zes", "ches", "shes", "oes")):
        yield word[:-2]
    if word.endswith("ies"):
        yield f"{word[:-3]}y"


def _plain(word: str) -> str:
    """Return the word in lower case, without punctuation after it. Backquotes stay: code is no verb."""
    return word.rstrip(".,:;!?)").lower()


def _may_be_a_claim(function: Function) -> bool:
    """Return whether the docstring may be a noun or a sentence: of a property, a constructor, a test or a fixture."""
    if function.name.startswith("test_") or function.name in ("__init__", "__new__", "__post_init__"):
        return True
    decorators = {_decorator_name(decorator) for decorator in function.decorator_list}
    return bool(decorators & {"property", "cached_property", "setter", "deleter", "overload", "fixture", "invariant"})


# Names


def name_findings(tree: ast.Module, path: str) -> Iterator[Finding]:
    """Yield a finding for each variable and parameter whose name stands for a thing without naming it."""
    for name, line in sorted(set(_bindings(tree)), key=lambda binding: binding[1]):
        if name.lstrip("_") in STAND_INS:
            message = f'variable "{name}": name the thing itself, as in "for partition in partitions"'
            yield Finding(path, line, "name", message)


def _bindings(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the name and the line of each local variable and parameter, once for each place that binds it."""
    exempt = {id(target) for target in _exempt_targets(tree)}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if id(node) not in exempt:
                yield name, node.lineno
            case ast.arg(arg=name):
                yield name, node.lineno
            case ast.ExceptHandler(name=str(name)):
                yield name, node.lineno
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield name, node.lineno


def _exempt_targets(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the names that globals and fields bind, and those of ``count += 1``, which were bound before."""
    for node in ast.walk(tree):
        match node:
            case ast.AugAssign():
                yield node.target
            case ast.Module() | ast.ClassDef():
                for statement in node.body:
                    if isinstance(statement, ast.Assign | ast.AnnAssign):
                        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                        yield from (name for target in targets for name in ast.walk(target))


# Sizes


def size_findings(tree: ast.Module, path: str) -> Iterator[Finding]:
    """Yield a finding for each class with too many attributes, and for each function with too many parameters."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not _is_frozen(node) and node.name not in LARGE:
            count = len(_attributes(node))
            if count > MAX_ATTRIBUTES:
                message = (
                    f"class {node.name} has {count} attributes, more than {MAX_ATTRIBUTES}: "
                    "group attributes that change together into a class"
                )
                yield Finding(path, node.lineno, "attributes", message)
    for function in _functions(tree):
        count = _parameter_count(function)
        if count > MAX_PARAMETERS and not _may_have_many_parameters(function, path):
            message = (
                f"function {function.name} has {count} parameters, more than {MAX_PARAMETERS}: "
                "group parameters that travel together into a dataclass"
            )
            yield Finding(path, function.lineno, "parameters", message)


def _attributes(class_: ast.ClassDef) -> set[str]:
    """Return the names of the attributes that methods set, of slots, and of the fields of a dataclass."""
    names: set[str] = set()
    is_dataclass = _dataclass_decorator(class_) is not None
    for statement in class_.body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names.update(_attributes_set_by(statement))
            case ast.AnnAssign(target=ast.Name(id=name)) if is_dataclass and "ClassVar" not in ast.unparse(
                statement.annotation
            ):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=ast.Tuple(elts=slots) | ast.List(elts=slots)):
                names.update(ast.unparse(slot).strip("'\"") for slot in slots)
    return names


def _attributes_set_by(method: Function) -> Iterator[str]:
    parameters = [*method.args.posonlyargs, *method.args.args]
    is_static = "staticmethod" in map(_decorator_name, method.decorator_list)
    if parameters and not is_static:
        instance = parameters[0].arg
        for node in ast.walk(method):
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr=attribute, ctx=ast.Store()) if name == instance:
                    yield attribute


def _is_frozen(class_: ast.ClassDef) -> bool:
    """Return whether the class is a frozen dataclass."""
    match _dataclass_decorator(class_):
        case ast.Call(keywords=keywords):
            return any(
                keyword.arg == "frozen" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
                for keyword in keywords
            )
    return False


def _dataclass_decorator(class_: ast.ClassDef) -> ast.expr | None:
    return next((node for node in class_.decorator_list if _decorator_name(node) == "dataclass"), None)


def _parameter_count(function: Function) -> int:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    if positional and positional[0].arg in ("self", "cls"):
        del positional[0]
    variadic = [parameter for parameter in (arguments.vararg, arguments.kwarg) if parameter]
    return len(positional) + len(arguments.kwonlyargs) + len(variadic)


def _may_have_many_parameters(function: Function, path: str) -> bool:
    """Return whether the parameters are settings, options of a command, or those of an overloaded function."""
    if function.name in {"__init__", "__new__", *LARGE} or "overload" in map(_decorator_name, function.decorator_list):
        return True
    settings = function.args.kwarg
    if settings and settings.annotation and ast.unparse(settings.annotation).startswith("Unpack["):
        return True
    return "cli" in Path(path).parts


# Syntax trees


def _functions(tree: ast.Module) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _decorator_name(decorator: ast.expr) -> str:
    """Return the last part of the decorator's name: "setter" of ``@timeout.setter``."""
    expression = decorator.func if isinstance(decorator, ast.Call) else decorator
    match expression:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
