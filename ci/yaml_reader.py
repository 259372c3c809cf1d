"""Read YAML nodes by the type that a field has, collecting every fault with its line.

The file is read as nodes rather than values: a node knows its line, duplicate keys are still to be seen,
and a scalar is read as its field wants it, so that YAML 1.1's surprises (``on`` is True, ``1.10`` is 1.1)
cannot happen.
"""

import re
from collections.abc import Callable
from typing import TypeVar

import yaml

from ci.errors import UsageError
from ci.text import did_you_mean, show

T = TypeVar("T")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_INTEGER = re.compile(r"0|[1-9][0-9]{0,8}")


class Fault(Exception):
    """The value at hand cannot be used; its fault is already on the list."""


class Reader:
    """Walks nodes and collects faults as ``origin:line: what``."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.faults: list[str] = []

    def fault(self, node: yaml.Node, what: str) -> Fault:
        self.faults.append(f"{show(self.origin)}:{node.start_mark.line + 1}: {what}")
        return Fault()

    def mapping(self, node: yaml.Node, what: str) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            raise self.fault(node, f"{what}: a mapping is expected here")
        found: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.fault(key, f"{what}: a key must be a plain word")
            elif key.value in found:
                self.fault(key, f"{what}: `{show(key.value)}` is given twice; keep one")
            else:
                found[key.value] = value
        return found

    def record(
        self, node: yaml.Node, what: str, *, optional: tuple[str, ...] = (), required: tuple[str, ...]
    ) -> "Record":
        return Record(self, node, what, required=required, optional=optional)

    def text(self, node: yaml.Node, what: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or not node.value:
            raise self.fault(node, f"{what}: a text is expected here")
        return str(node.value)

    def texts(self, node: yaml.Node, what: str) -> tuple[str, ...]:
        if not isinstance(node, yaml.SequenceNode):
            raise self.fault(node, f"{what}: a list is expected here, as [a, b]")
        values = tuple(self.text(item, what) for item in node.value)
        if len(set(values)) != len(values):
            raise self.fault(node, f"{what}: an entry is given twice")
        return values

    def matching(self, node: yaml.Node, what: str, pattern: re.Pattern[str], kind: str) -> str:
        if not pattern.fullmatch(value := self.text(node, what)):
            raise self.fault(node, f"{what}: `{show(value, 60)}` is not {kind}")
        return value

    def variable(self, node: yaml.Node, what: str) -> str:
        return self.matching(node, what, _VARIABLE, "the name of an environment variable")

    def variables(self, node: yaml.Node, what: str) -> tuple[str, ...]:
        self.texts(node, what)
        return tuple(self.variable(item, what) for item in node.value)

    def inner_path(self, node: yaml.Node, what: str) -> str:
        if not is_inner(value := self.text(node, what)):
            raise self.fault(node, f"{what}: `{show(value, 60)}` leaves the repository; use a relative path without ..")
        return value

    def absolute_path(self, node: yaml.Node, what: str) -> str:
        return self.absolute(self.text(node, what), node, what)

    def absolute(self, path: str, node: yaml.Node, what: str) -> str:
        if not path.startswith("/") or ":" in path or ".." in path.split("/"):
            raise self.fault(node, f"{what}: `{show(path, 60)}` is not an absolute path without `..` and colon")
        return path

    def integer(self, node: yaml.Node, what: str, least: int) -> int:
        value = int(self.matching(node, what, _INTEGER, "a whole number"))
        if value < least:
            raise self.fault(node, f"{what}: {value} is too small; {least} is the least")
        return value

    def boolean(self, node: yaml.Node, what: str) -> bool:
        return self.matching(node, what, re.compile("true|false"), "true or false") == "true"

    def one_of(self, node: yaml.Node, what: str, known: tuple[str, ...]) -> str:
        if (value := self.text(node, what)) not in known:
            raise self.fault(node, f"{what}: `{show(value, 60)}` is not known; {did_you_mean(value, known)}")
        return value

    def subset(self, node: yaml.Node, what: str, known: tuple[str, ...]) -> tuple[str, ...]:
        values = self.texts(node, what)
        for value in values:
            if value not in known:
                raise self.fault(node, f"{what}: `{show(value, 60)}` is not known; {did_you_mean(value, known)}")
        return values

    def each(self, node: yaml.Node | None, what: str, read: Callable[[str, yaml.Node], T]) -> dict[str, T]:
        """Every entry of a mapping through ``read``; a faulty one is left out and the others go on."""
        values: dict[str, T] = {}
        if node is None:
            return values
        try:
            entries = self.mapping(node, what)
        except Fault:
            return values
        for name, entry in entries.items():
            try:
                values[name] = read(name, entry)
            except Fault:
                continue
        return values


class Record:
    """A mapping with a fixed set of fields: unknown and missing ones are faults of their own."""

    def __init__(
        self,
        reader: Reader,
        node: yaml.Node,
        what: str,
        *,
        required: tuple[str, ...],
        optional: tuple[str, ...],
    ) -> None:
        self._reader, self._node, self._what = reader, node, what
        self._fields = reader.mapping(node, what)
        known = (*required, *optional)
        for name, value in self._fields.items():
            if name not in known:
                reader.fault(value, f"{what}: `{show(name)}` is not a field; {did_you_mean(name, known)}")
        missing = [name for name in required if name not in self._fields]
        if missing:
            raise reader.fault(node, f"{what}: {', '.join(missing)} missing")

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def node(self, name: str) -> yaml.Node:
        return self._fields[name]

    def get(self, name: str, read: Callable[[yaml.Node, str], T]) -> T:
        return read(self._fields[name], f"{self._what}.{name}")


def is_inner(path: str) -> bool:
    """Whether a relative path stays in its folder."""
    return not path.startswith(("/", "\\")) and ".." not in path.split("/")


def compose(source: str, origin: str) -> yaml.Node:
    """The root node of a YAML text.

    Raises:
        UsageError: not YAML, or empty; with the line.
    """
    try:
        root = yaml.compose(source, Loader=_LOADER)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{show(origin)}:{mark.line + 1}" if mark else show(origin)
        raise UsageError(
            f"{where}: not YAML: {show(getattr(error, 'problem', None) or error)}", hint="mend the file at that line"
        ) from error
    if root is None:
        raise UsageError(f"{show(origin)}: the file is empty", hint="restore it from git")
    return root
