import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ci.docker_credentials import Credentials, find_credentials
from ci.errors import CiError, InfrastructureError, UsageError
from tests.processes import alive, pids_in, wait_for

HUB_KEY = "https://index.docker.io/v1/"


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))

    def write(**config: object) -> Path:
        (tmp_path / "config.json").write_text(json.dumps(config))
        return tmp_path / "config.json"

    return write


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a credential helper on PATH; what it is asked is noted."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def write(name: str, script: str) -> Path:
        program = folder / f"docker-credential-{name}"
        program.write_text(f'#!/bin/sh\n{{ echo "$1"; cat; }} >> {folder}/asked\n{script}\n')
        program.chmod(0o755)
        return folder / "asked"

    return write


def pair(found: Credentials | None) -> tuple[str, str] | None:
    return None if found is None else (found.user, found.secret)


def test_without_any_configuration_there_are_none() -> None:
    assert find_credentials("docker.io") is None


@pytest.mark.parametrize(
    ("key", "registry"),
    [
        (HUB_KEY, "docker.io"),
        ("docker.io", "docker.io"),
        ("ghcr.io", "ghcr.io"),
        ("https://ghcr.io/v2/", "ghcr.io"),
        ("http://localhost:5000", "localhost:5000"),
    ],
)
def test_a_login_of_docker_is_found(configure: Any, key: str, registry: str) -> None:
    configure(auths={"elsewhere.example": {"auth": coded("x:y")}, key: {"auth": coded("me:pa:ss\0")}})
    assert pair(find_credentials(registry)) == ("me", "pa:ss")
    assert find_credentials("localhost:5001") is None


def test_a_login_in_the_home_folder_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DOCKER_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker" / "config.json").write_text(json.dumps({"auths": {"ghcr.io": {"auth": coded("me:käse")}}}))
    assert pair(find_credentials("ghcr.io")) == ("me", "käse")


def test_an_identity_token_is_told_from_a_password(configure: Any) -> None:
    configure(auths={"ghcr.io": {"auth": coded("me:"), "identitytoken": "idt"}})
    found = find_credentials("ghcr.io")
    assert found is not None
    assert (found.secret, found.is_identity_token) == ("idt", True)


def test_an_empty_entry_is_no_login(configure: Any) -> None:
    configure(auths={"ghcr.io": {}})
    assert find_credentials("ghcr.io") is None


def test_the_entry_of_the_host_itself_goes_before_one_of_a_path_on_it(configure: Any) -> None:
    configure(auths={"ghcr.io/org": {"auth": coded("org:1")}, "ghcr.io": {"auth": coded("me:2")}})
    assert pair(find_credentials("ghcr.io")) == ("me", "2")


@pytest.mark.parametrize(
    "entry",
    [
        {"auth": "s3cret!"},
        {"auth": coded("s3cret")},
        {"auth": base64.b64encode(b"\xffs3cret:x").decode()},
        {"auth": ["s3cret"]},
        "s3cret",
    ],
)
def test_a_broken_login_is_an_error_that_names_file_and_entry_and_not_what_is_in_it(
    configure: Any, entry: object
) -> None:
    file = configure(auths={"ghcr.io": entry})
    with pytest.raises(UsageError) as raised:
        find_credentials("ghcr.io")
    assert f"{file}, `ghcr.io`" in str(raised.value)
    assert "s3cret" not in str(raised.value)
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


@pytest.mark.parametrize("text", ["{", "[]", '{"auths": []}', '{"credHelpers": 1}', '{"credsStore": {}}', "[" * 99999])
def test_a_broken_configuration_is_an_error(configure: Any, text: str) -> None:
    file = configure()
    file.write_text(text)
    with pytest.raises(UsageError, match=r"config\.json"):
        find_credentials("ghcr.io")


@pytest.mark.parametrize(("registry", "server"), [("docker.io", HUB_KEY), ("localhost:5000", "localhost:5000")])
@pytest.mark.parametrize("setting", ["credsStore", "credHelpers"])
def test_a_helper_is_asked_for_the_server_on_its_input(
    configure: Any, helper: Any, registry: str, server: str, setting: str
) -> None:
    asked = helper("stand-in", """echo '{"ServerURL":"x","Username":"me","Secret":"pa55"}'""")
    configure(**{setting: "stand-in" if setting == "credsStore" else {server: "stand-in"}})
    found = find_credentials(registry)
    assert pair(found) == ("me", "pa55")
    assert found is not None
    assert found.origin == "docker-credential-stand-in"
    assert asked.read_text() == f"get\n{server}\n"


def test_a_helper_of_one_registry_goes_before_the_store_of_all(configure: Any, helper: Any) -> None:
    helper("one", """echo '{"Username":"<token>","Secret":"1"}'""")
    helper("all", """echo '{"Username":"all","Secret":"2"}'""")
    configure(credsStore="all", credHelpers={"ghcr.io": "one"})
    found = find_credentials("ghcr.io")
    assert found is not None
    assert (found.secret, found.is_identity_token) == ("1", True)
    assert pair(find_credentials("docker.io")) == ("all", "2")


def test_a_helper_that_knows_nothing_leaves_the_logins(configure: Any, helper: Any) -> None:
    helper("store", "echo credentials not found in native keychain; exit 1")
    configure(credsStore="store", auths={"ghcr.io": {"auth": coded("me:1")}})
    assert pair(find_credentials("ghcr.io")) == ("me", "1")
    assert find_credentials("docker.io") is None


@pytest.mark.parametrize(
    "script",
    [
        "echo s3cret; exit 1",
        "echo s3cret",
        """echo '["s3cret"]'""",
        """echo '{"Username":"s3cret"}'""",
        """echo '{"Username":1,"Secret":"s3cret"}'""",
        "exit 0",
    ],
)
def test_a_helper_that_fails_is_an_error_without_what_it_printed(configure: Any, helper: Any, script: str) -> None:
    helper("bad", script)
    configure(credsStore="bad")
    with pytest.raises(InfrastructureError, match="docker-credential-bad") as raised:
        find_credentials("docker.io")
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("name", ["../evil", "a/b", "", "-x", "a b", 7])
def test_a_helper_is_a_bare_name(configure: Any, name: object) -> None:
    configure(credHelpers={"ghcr.io": name})
    if name == "":
        assert find_credentials("ghcr.io") is None
        return
    with pytest.raises(UsageError, match="is not the name of a credential helper"):
        find_credentials("ghcr.io")


def test_a_helper_that_is_not_installed_is_named_with_who_named_it(configure: Any) -> None:
    file = configure(credsStore="not-here")
    with pytest.raises(InfrastructureError, match="docker-credential-not-here is not installed") as raised:
        find_credentials("docker.io")
    assert str(file) in str(raised.value)


def test_a_helper_that_does_not_end_is_ended_with_what_it_started(configure: Any, helper: Any, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    helper("slow", f"sleep 300 & echo $! >> {pids}; echo $$ >> {pids}; wait")
    configure(credsStore="slow")
    with pytest.raises(InfrastructureError, match="docker-credential-slow did not answer within 2 s"):
        find_credentials("docker.io", helper_timeout=2.0)
    noted = pids_in(pids)
    assert len(noted) == 2
    wait_for(lambda: not any(alive(pid) for pid in noted))


def in_environment(monkeypatch: pytest.MonkeyPatch, user: str, password: str, registry: str | None = None) -> None:
    for name, value in (("USER", user), ("PASSWORD", password)):
        monkeypatch.setenv(f"CI_REGISTRY_{name}", value)
    if registry is not None:
        monkeypatch.setenv("CI_REGISTRY", registry)


def test_the_environment_goes_before_docker_and_asks_no_helper(
    configure: Any, helper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = helper("store", "exit 1")
    configure(credsStore="store")
    in_environment(monkeypatch, "robot", "pa55")
    found = find_credentials("docker.io")
    assert pair(found) == ("robot", "pa55")
    assert not asked.exists()


def test_the_environments_password_is_for_the_registry_it_names_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    in_environment(monkeypatch, "robot", "pa55")
    assert pair(find_credentials("docker.io")) == ("robot", "pa55")
    assert find_credentials("localhost:5000") is None
    monkeypatch.setenv("CI_REGISTRY", "http://localhost:5000/")
    assert pair(find_credentials("localhost:5000")) == ("robot", "pa55")
    assert find_credentials("docker.io") is None


@pytest.mark.parametrize(
    ("user", "password", "said"), [("me", "", "PASSWORD is not"), ("", "x", "USER is not"), ("a:b", "x", "a colon")]
)
def test_half_of_the_credentials_is_an_error(
    monkeypatch: pytest.MonkeyPatch, user: str, password: str, said: str
) -> None:
    in_environment(monkeypatch, user, password)
    with pytest.raises(CiError, match=said):
        find_credentials("docker.io")


def test_a_secret_is_not_in_what_is_shown_of_credentials() -> None:
    assert "pa55" not in repr(Credentials(user="me", secret="pa55", origin="a test"))
