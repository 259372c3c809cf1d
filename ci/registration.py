"""Registrations of one test file, read from its AST and never executed (spec §3).

``read_registrations`` is a function of the bytes alone, so that its answer can be kept per file; what the
inventory says of labels and suites is checked afterwards by ``check_labels`` and ``check_suite``.
"""

import ast
import itertools
import math
import re
import symtable
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ci.inventory import Inventory
from ci.text import did_you_mean, show

_PARAMETERS = ("est_time", "suite", "labels", "nightly", "disabled")
_POSITIONAL = 2  # est_time and suite alone may be given by position
_COMMON_CODINGS = (b"utf-8", b"utf8", b"latin-1", b"latin1", b"iso-8859-1", b"iso8859-1", b"ascii", b"us-ascii")
_NEXT_STATEMENT = re.compile(rb"\n(?=[^\s)\]}#])")
_CODING = re.compile(rb"coding[:=][ \t]*([-\w.]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One call of ``register_<backend>_ci``, or the implicit one of a file under tests/fast.

    ``est_time`` in seconds; ``disabled`` holds the reason; ``line`` is 1-based, 0 for an implicit one.
    """

    file: str
    line: int
    backend: str
    suite: str
    est_time: float
    labels: tuple[str, ...] = ()
    nightly: bool = False
    disabled: str | None = None
    implicit: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong in one file: ``file:line: what; what to do``."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        where = f"{show(self.file)}:{self.line}" if self.line else show(self.file)
        return f"{where}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileScan:
    """What one file declares. ``mentioned``: a register name stands in its code, counted or not.

    ``problems`` make the file unusable; ``strays`` are mentions that do not count, each with its reason.
    """

    registrations: tuple[Registration, ...] = ()
    problems: tuple[Finding, ...] = ()
    strays: tuple[Finding, ...] = ()
    mentioned: bool = False


class Mentions:
    """Finds the register names in a file's bytes, whole words only.

    Most files have none: what all names begin with is looked for first, which costs a tenth of the pattern.
    """

    def __init__(self, registers: Mapping[str, str]) -> None:
        names = sorted(name.encode() for name in registers)
        self._prefix = _common_prefix(names[0], names[-1])
        self._pattern = re.compile(rb"\b(?:" + b"|".join(names) + rb")\b")

    def __contains__(self, source: bytes) -> bool:
        return self._prefix in source and self._pattern.search(source) is not None

    def last_end(self, source: bytes) -> int | None:
        """Where the last mention ends, or None."""
        position = len(source)
        while (position := source.rfind(self._prefix, 0, position)) >= 0:
            if found := self._pattern.match(source, position):
                return found.end()
        return None


def _common_prefix(first: bytes, last: bytes) -> bytes:
    """What the first and last of sorted names begin with, and so all between them."""
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return bytes(byte for byte, _ in same)


def read_registrations(source: bytes, file: str, registers: Mapping[str, str], mentions: Mentions) -> FileScan:
    """Read the registrations of one file; ``registers`` maps register function to backend.

    Only a bare-name call that is a top-level expression statement counts. Never raises: a file that
    Python could not read is a problem of that file.
    """
    try:
        tree = _tree(source, mentions)
    except SyntaxError as error:
        return _unreadable(file, error.lineno or 0, f"Python cannot read it: {show(error.msg)}; mend the syntax")
    except (ValueError, RecursionError, MemoryError, LookupError, UnicodeError) as error:
        return _unreadable(file, 0, f"Python cannot read it: {show(error) or type(error).__name__}; mend the file")
    registrations: list[Registration] = []
    problems: list[Finding] = []
    counted: set[ast.expr] = set()
    for call in _top_level_calls(tree, registers):
        counted.add(call.func)
        read = _read_call(call, file, registers)
        if isinstance(read, Registration):
            registrations.append(read)
        else:
            problems.extend(read)
    strays, imported = _strays(tree, file, registers, counted) if source in mentions else ([], False)
    return FileScan(
        registrations=tuple(registrations),
        problems=tuple(problems),
        strays=tuple(strays),
        mentioned=bool(counted or strays) or imported,
    )


def _unreadable(file: str, line: int, text: str) -> FileScan:
    return FileScan(problems=(Finding(file, line, text),), mentioned=True)


def _tree(source: bytes, mentions: Mentions) -> ast.Module:
    """The AST of the file up to the statement that holds the last mention, after a check of the whole.

    Building Python's AST objects is most of the cost of ``ast.parse``. ``symtable`` runs the same parser
    over the whole file without building them; then only the head is built. A head that parses by itself
    and ends in a whole line has the same statements as the whole file begins with.
    """
    head = _head(source, mentions)
    if head is None:
        return ast.parse(source)
    try:
        symtable.symtable(source, "<test file>", "exec")  # type: ignore[arg-type]  # takes bytes, as compile does
        return ast.parse(head)
    except Exception:  # noqa: BLE001 - whatever went wrong, the whole file decides
        return ast.parse(source)


def _head(source: bytes, mentions: Mentions) -> bytes | None:
    """The lines up to the first one after the last mention that begins a statement, if that is a saving."""
    coding = _CODING.search(source[:400])
    if coding and coding[1].lower().replace(b"_", b"-") not in _COMMON_CODINGS:
        return None
    if (end := mentions.last_end(source)) is None:
        return None
    following = _NEXT_STATEMENT.search(source, end)
    return source[: following.end()] if following else None


def _top_level_calls(tree: ast.Module, registers: Mapping[str, str]) -> Iterator[ast.Call]:
    for statement in tree.body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in registers:
            yield call


def _read_call(call: ast.Call, file: str, registers: Mapping[str, str]) -> Registration | list[Finding]:
    """The registration that a call declares, or every reason why it declares none."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    given, faults = _arguments(call)
    values: dict[str, object] = {}
    for parameter, node in given.items():
        value, fault = _READERS[parameter](node)
        values[parameter] = value
        if fault:
            faults.append((node.lineno, f"{parameter} {fault}"))
    faults.extend(
        (call.lineno, f"{required} is missing; give it") for required in _PARAMETERS[:2] if required not in given
    )
    if faults:
        return [Finding(file, line, f"{name}: {text}") for line, text in faults]
    return Registration(file=file, line=call.lineno, backend=registers[name], **values)  # type: ignore[arg-type]


def _arguments(call: ast.Call) -> tuple[dict[str, ast.expr], list[tuple[int, str]]]:
    given: dict[str, ast.expr] = {}
    faults: list[tuple[int, str]] = []
    if any(isinstance(argument, ast.Starred) for argument in call.args) or any(kw.arg is None for kw in call.keywords):
        faults.append((call.lineno, "`*` and `**` arguments cannot be read; write each argument out"))
    positional = [argument for argument in call.args if not isinstance(argument, ast.Starred)]
    if len(positional) > _POSITIONAL:
        faults.append(
            (positional[_POSITIONAL].lineno, "only est_time and suite may be given by position; name the others")
        )
    given.update(zip(_PARAMETERS[:_POSITIONAL], positional, strict=False))
    for keyword in call.keywords:
        if keyword.arg is None:
            continue
        if keyword.arg not in _PARAMETERS:
            faults.append(
                (keyword.lineno, f"`{show(keyword.arg)}` is not an argument; {did_you_mean(keyword.arg, _PARAMETERS)}")
            )
        elif keyword.arg in given:
            faults.append((keyword.lineno, f"{keyword.arg} is given twice; keep one"))
        else:
            given[keyword.arg] = keyword.value
    return given, faults


def _read_est_time(node: ast.expr) -> tuple[float, str | None]:
    wanted = "must be a finite number of seconds above 0, written out"
    if not isinstance(node, ast.Constant) or type(node.value) not in {int, float}:
        return 0.0, wanted
    try:
        seconds = float(node.value)  # type: ignore[arg-type]
    except OverflowError:
        return 0.0, wanted
    return seconds, None if math.isfinite(seconds) and seconds > 0 else wanted


def _read_suite(node: ast.expr) -> tuple[str, str | None]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value, None
    return "", "must be a string, written out"


def _read_labels(node: ast.expr) -> tuple[tuple[str, ...], str | None]:
    if isinstance(node, ast.Constant) and node.value is None:
        return (), None
    if isinstance(node, ast.List):
        texts = [item.value for item in node.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        if len(texts) == len(node.elts):
            return tuple(texts), None
    return (), "must be a list of strings, written out, or None"


def _read_nightly(node: ast.expr) -> tuple[bool, str | None]:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return node.value, None
    return False, "must be True or False, written out"


def _read_disabled(node: ast.expr) -> tuple[str | None, str | None]:
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str)):
        return node.value, None
    return None, "must be the reason as a string, written out, or None"


_READERS = {
    "est_time": _read_est_time,
    "suite": _read_suite,
    "labels": _read_labels,
    "nightly": _read_nightly,
    "disabled": _read_disabled,
}


def _strays(
    tree: ast.Module, file: str, registers: Mapping[str, str], counted: set[ast.expr]
) -> tuple[list[Finding], bool]:
    """Mentions of a register name in code that do not count, each with its reason; and whether one is imported."""
    found: list[tuple[int, str, ast.AST]] = []
    calls: set[ast.expr] = set()
    imported = False
    for node in ast.walk(tree):
        match node:
            case ast.Call():
                calls.add(node.func)
            case ast.alias(name=name, asname=other) if name in registers:
                imported = True
                if other not in {None, name}:
                    text = f"is imported as `{show(other)}`, whose calls do not count; import it by its own name"
                    found.append((node.lineno, f"{name} {text}", node))
            case ast.Attribute(attr=name) if name in registers:
                text = "is reached through another name, which does not count; import and call it bare"
                found.append((node.lineno, f"{name} {text}", node))
            case ast.Name(id=name) if name in registers and node not in counted:
                found.append((node.lineno, name, node))
    return [Finding(file, line, _complete(text, node, calls)) for line, text, node in found], imported


def _complete(text: str, node: ast.AST, calls: set[ast.expr]) -> str:
    """The reason of a bare name, which depends on whether it is called."""
    if not isinstance(node, ast.Name):
        return text
    what = "called, but not as a statement of its own at top level" if node in calls else "named without a call"
    return f"{text} is {what}, which does not count; move it to the top level, alone"


def check_labels(registration: Registration, inventory: Inventory) -> list[Finding]:
    """Faults of a registration's labels: unknown ones, or none where the backend needs one (spec §3)."""
    where = (registration.file, registration.line)
    faults = [
        Finding(*where, f"label `{show(label)}` is not known; {did_you_mean(label, inventory.labels)}")
        for label in registration.labels
        if label not in inventory.labels
    ]
    backend = inventory.backends[registration.backend]
    if backend.labels_required and not registration.labels:
        faults.append(Finding(*where, f"{backend.register} needs at least one label; add labels=[...]"))
    return faults


def check_suite(registration: Registration, inventory: Inventory) -> Finding | None:
    """A suite that the inventory does not have, or has for another backend: such a test never runs (spec §2)."""
    stage = inventory.stages.get(registration.suite)
    if stage is not None and stage.backend == registration.backend:
        return None
    of_backend = [stage.name for stage in inventory.stages.values() if stage.backend == registration.backend]
    what = "is not a suite" if stage is None else f"is a {stage.backend} suite, not one of {registration.backend}"
    text = f"`{show(registration.suite)}` {what} of {show(inventory.origin)}, so it never runs"
    return Finding(registration.file, registration.line, f"{text}; {did_you_mean(registration.suite, of_backend)}")
