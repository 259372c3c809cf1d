"""The backends of an inventory and their images, read from its YAML (spec §2, §8, §9)."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

import yaml
from packaging.utils import canonicalize_name

from ci.inventory import Backend, Image, ImageInputs
from ci.text import show
from ci.yaml_reader import Reader, is_inner

_OCI_LABEL = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")
_PR_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,49}")
# no pattern but a last `*`: what a name means must not depend on who matches it
_INPUT_PATH = re.compile(r"([^/*?\[\]\\]+/)*([^/*?\[\]\\]+|(?<=/)\*)")


def read_backend(reader: Reader, name: str, node: yaml.Node, dependencies: tuple[str, ...]) -> Backend:
    """One entry of ``backends``; ``dependencies``: the names that an image's folders may have."""
    what = f"backends.{show(name)}"
    flags = ("labels_required", "dispatch_matches_all", "baked_sources")
    record = reader.record(
        node,
        what,
        required=("title", "register", "hardware", "requirements", "secrets", "attempts", "job_minutes", *flags),
        optional=("python", "image"),
    )
    register = re.compile(r"register_[a-z0-9]+_ci")
    version = re.compile(r"3\.[0-9]{1,2}")
    return Backend(
        name=name,
        title=record.get("title", reader.text),
        register=record.get("register", lambda node, what: reader.matching(node, what, register, "register_<x>_ci")),
        hardware=record.get("hardware", reader.texts),
        labels_required=record.get(flags[0], reader.boolean),
        dispatch_matches_all=record.get(flags[1], reader.boolean),
        baked_sources=record.get(flags[2], reader.boolean),
        attempts=record.get("attempts", lambda node, what: reader.integer(node, what, 1)),
        job_minutes=record.get("job_minutes", lambda node, what: reader.integer(node, what, 1)),
        secrets=record.get("secrets", reader.variables),
        python=record.get("python", lambda node, what: reader.matching(node, what, version, 'a version as "3.11"'))
        if "python" in record
        else None,
        requirements=record.get("requirements", reader.texts),
        image=record.get("image", lambda node, what: _image(reader, node, what, dependencies))
        if "image" in record
        else None,
    )


def _image(reader: Reader, node: yaml.Node, what: str, dependencies: tuple[str, ...]) -> Image:
    optional = ("directive", "checkouts", "protected", "patches", "options", "mounts", "inputs")
    record = reader.record(node, what, required=("repository", "tag"), optional=optional)

    def listed(field: str) -> tuple[str, ...]:
        return record.get(field, reader.texts) if field in record else ()

    def mapped(field: str, read: Callable[[Reader, yaml.Node, str], str], known: tuple[str, ...]) -> Mapping[str, str]:
        if field not in record:
            return MappingProxyType({})
        where = f"{what}.{field}"
        entries = reader.each(record.node(field), where, lambda name, node: read(reader, node, f"{where}.{show(name)}"))
        for name in entries:
            if known and name not in known:
                raise reader.fault(record.node(field), f"{where}: no dependency `{show(name)}`")
            if not known:
                reader.absolute(name, record.node(field), where)
        return MappingProxyType(entries)

    return Image(
        repository=record.get("repository", reader.text),
        tag=record.get("tag", reader.text),
        directive=record.get("directive", reader.text) if "directive" in record else None,
        checkouts=mapped("checkouts", Reader.absolute_path, dependencies),
        protected=tuple(str(canonicalize_name(name)) for name in listed("protected")),
        patches=mapped("patches", Reader.inner_path, dependencies),
        options=listed("options"),
        mounts=mapped("mounts", Reader.absolute_path, ()),
        inputs=record.get("inputs", lambda node, what: _inputs(reader, node, what)) if "inputs" in record else None,
    )


def _inputs(reader: Reader, node: yaml.Node, what: str) -> ImageInputs:
    record = reader.record(node, what, required=("label", "rebuild_label", "paths"))
    paths = record.get("paths", reader.texts)
    odd = [path for path in paths if not _INPUT_PATH.fullmatch(path) or not is_inner(path) or "." in path.split("/")]
    if odd or not paths:
        wanted = "write relative paths of files, or FOLDER/*"
        raise reader.fault(record.node("paths"), f"{what}.paths: `{show(odd[0], 60) if odd else ''}`; {wanted}")
    return ImageInputs(
        label=record.get("label", lambda node, what: reader.matching(node, what, _OCI_LABEL, "a label of an image")),
        rebuild_label=record.get(
            "rebuild_label", lambda node, what: reader.matching(node, what, _PR_LABEL, "a label of a pull request")
        ),
        paths=paths,
    )
