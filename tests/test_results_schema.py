"""The declared shape of results.json against what the code writes; real runs are held against it in their own tests."""

import json
from dataclasses import fields
from typing import Any

import jsonschema
import pytest

from ci.paths import REPOSITORY
from ci.process import Reaped
from ci.results import SCHEMA, Attempt, FileResult, Status, SuiteOutcome, Verdict, results_json

DECLARED = json.loads((REPOSITORY / "ci/results.schema.json").read_text())
FACTS = dict.fromkeys(("suite", "backend", "cadence", "workspace"), "x") | {
    "partition": {"id": 0, "size": 2},
    "policy": {},
    "enabled": 1,
    "skipped": 0,
}


def document() -> dict[str, Any]:
    reaped = (Reaped(pid=7, command="sleep 9", age=1.5, memory=1 << 30),)
    attempt = Attempt(
        number=1,
        started="2030-01-02T03:04:05.678+00:00",
        ended="2030-01-02T03:04:06.178+00:00",
        duration=0.5,
        limit=1800.0,
        status=Status.SIGNALLED,
        code=-11,
        retry="a crash is not retried",
        peak_memory=1,
        log="/r/a/attempt-1.log",
        reaped=reaped,
    )
    file = FileResult(file="tests/e2e/test_a.py", verdict=Verdict.FAILED, duration=0.5, attempts=(attempt,))
    found: dict[str, Any] = json.loads(results_json(SuiteOutcome(files=(file,), reaped=reaped), FACTS))
    return found


def validate(found: object) -> None:
    jsonschema.Draft202012Validator(DECLARED).validate(found)


def test_the_schema_is_one_and_fits_what_is_written() -> None:
    jsonschema.Draft202012Validator.check_schema(DECLARED)
    validate(document())
    assert DECLARED["properties"]["schema"]["const"] == SCHEMA


def test_every_value_and_field_of_the_code_is_declared() -> None:
    declared = DECLARED["$defs"]
    assert declared["file"]["properties"]["verdict"]["enum"] == list(Verdict)
    assert declared["attempt"]["properties"]["status"]["enum"] == list(Status)
    assert list(declared["attempt"]["properties"]) == [field.name for field in fields(Attempt)]
    assert list(declared["reaped"]["properties"]) == [field.name for field in fields(Reaped)]


def broken(path: str, value: object) -> dict[str, Any]:
    found = document()
    *parents, last = path.split(".")
    place: Any = found
    for name in parents:
        place = place[int(name) if name.isdigit() else name]
    place[last] = value
    return found


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("schema", 2),
        ("exit_code", 4),
        ("undeclared", 1),
        ("files.0.verdict", "ok"),
        ("files.0.tests", {"green": 1}),
        ("files.0.attempts.0.status", "dead"),
        ("files.0.attempts.0.started", "2030-01-02 03:04"),
        ("files.0.attempts.0.reaped.0.memory", "1 GiB"),
        ("facts.partition", 3),
        ("facts.leftovers", [{"pid": 3}]),
    ],
)
def test_another_shape_is_refused(path: str, value: object) -> None:
    with pytest.raises(jsonschema.ValidationError):
        validate(broken(path, value))
