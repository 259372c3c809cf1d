"""A ref of a dependency as a value: parsed once from text that a stranger may have written (spec §7)."""

import enum
import re
from dataclasses import dataclass

from ci.errors import UsageError
from ci.text import show

_COMMIT = re.compile(r"[0-9a-fA-F]{40}", re.ASCII)
_SHORT_HASH = re.compile(r"[0-9a-f]{7,39}", re.ASCII)
_PULL = re.compile(r"#([0-9]+)", re.ASCII)
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]")
_PATH_PREFIX = "path:"
_MAX_LENGTH = 255


class RefKind(enum.StrEnum):
    """What a ref names, and so how it is looked up."""

    NAME = "name"  # a branch or a tag, by its short name
    FULL = "full"  # refs/heads/x, refs/tags/x, refs/pull/N/head
    COMMIT = "commit"  # 40 hex digits
    PATH = "path"  # a local tree, used as it is


@dataclass(frozen=True, slots=True)
class Ref:
    """``value`` is the short name, the full name, the lower-case commit, or the folder."""

    kind: RefKind
    value: str

    def __str__(self) -> str:
        return f"{_PATH_PREFIX}{self.value}" if self.kind is RefKind.PATH else self.value

    @property
    def looks_like_short_hash(self) -> bool:
        """A branch may have such a name, but most often a person cut a commit short."""
        return self.kind is RefKind.NAME and _SHORT_HASH.fullmatch(self.value) is not None

    @property
    def candidates(self) -> tuple[str, ...]:
        """The full names that the ref can stand for at a remote; empty for a commit or a folder."""
        match self.kind:
            case RefKind.NAME:
                return (f"refs/heads/{self.value}", f"refs/tags/{self.value}")
            case RefKind.FULL:
                return (self.value,)
            case _:
                return ()


def parse_ref(text: str, *, allow_path: bool = False) -> Ref:
    """Read ``#N``, a branch or tag name, a full ``refs/…`` name or a full commit.

    ``allow_path`` also admits ``path:DIR``: for a person's own command line, never for text of a PR.
    ``#`` and ASCII digits are a pull request; anything else that begins with ``#`` is a name, as in the
    live system. The rules of names are git's own (git-check-ref-format), and a leading ``-`` is refused.

    Raises:
        UsageError: the text is none of these; the message says why.
    """
    if allow_path and text.startswith(_PATH_PREFIX):
        if not (folder := text.removeprefix(_PATH_PREFIX)):
            raise UsageError("`path:` names no folder", hint="write path:DIR, a folder that holds the source tree")
        return Ref(RefKind.PATH, folder)
    if _COMMIT.fullmatch(text):
        return Ref(RefKind.COMMIT, text.lower())
    if pull := _PULL.fullmatch(text):
        return Ref(RefKind.FULL, f"refs/pull/{pull[1]}/head")
    if fault := ref_name_fault(text):
        raise UsageError(
            f"`{show(text, 80)}` is not a ref: {fault}",
            hint="write a branch or tag, a full refs/… name, #N for a pull request, or a commit of 40 hex digits",
        )
    return Ref(RefKind.FULL if text.startswith("refs/") else RefKind.NAME, text)


def ref_name_fault(name: str) -> str | None:
    """Why git would not take ``name`` as the name of a branch or tag, or None."""
    return next((fault for fault in (_whole_fault(name), *map(_part_fault, name.split("/"))) if fault), None)


def _whole_fault(name: str) -> str | None:
    bad = _FORBIDDEN.search(name)
    checks = (
        (not name, "it is empty"),
        (name == "@", "a lone `@` stands for HEAD"),
        (name.startswith("-"), "it begins with `-`, which git could take for an option"),
        (len(name.encode("utf-8", "surrogatepass")) > _MAX_LENGTH, f"it is longer than {_MAX_LENGTH} bytes"),
        (bad, "it holds a blank" if bad and bad[0] == " " else f"it holds `{show(bad[0] if bad else '')}`"),
        (not name.isprintable(), "it holds an unprintable character"),
        (".." in name or "@{" in name, "it holds `..` or `@{`"),
        (name.endswith("."), "it ends in `.`"),
        (name.startswith("refs/") and name.count("/") < 2, "a full name has three parts, as refs/heads/x"),  # noqa: PLR2004
    )
    return next((fault for wrong, fault in checks if wrong), None)


def _part_fault(part: str) -> str | None:
    if not part:
        return "it has an empty part between slashes"
    if part.startswith(".") or part.endswith(".lock"):
        return f"its part `{show(part)}` begins with `.` or ends in `.lock`"
    return None
