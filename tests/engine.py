"""A stand-in for docker: a client on PATH, and a daemon that is nobody's descendant here, as the real one's.

A container is a process of the daemon on this machine: it has just the environment that it was given, finds the
image's programs in ``image/``, and goes on when its client is killed. What the client was asked is in ``calls``.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.processes import wait_for

CLIENT = """#!{python}
import json, os, signal, sys, time
STATE = {state!r}
CONTAINERS = os.path.join(STATE, "containers")

def refuse(text, code=125):
    sys.stderr.write(f"docker: {{text}}\\n\\nRun 'docker run --help' for more information\\n")
    sys.exit(code)

def read(*parts):
    try:
        with open(os.path.join(CONTAINERS, *parts)) as stream:
            return stream.read()
    except OSError:
        return ""

def run(arguments):
    given = {{"--env": [], "--mount": []}}
    while arguments[0].startswith("--"):
        flag, equals, value = arguments.pop(0).partition("=")
        if flag not in ("--rm", "--init", "--privileged") and not equals:
            value = arguments.pop(0)
        given.setdefault(flag, []).append(value)
    image, *command = arguments
    if image.endswith(":absent"):
        refuse(f"Error response from daemon: manifest for {{image}} not found: manifest unknown")
    for mount in given["--mount"]:
        fields = dict(part.partition("=")[::2] for part in mount.split(","))
        if not os.path.exists(fields["source"]):
            refuse(f"invalid mount config for type \\"bind\\": bind source path does not exist: {{fields['source']}}")
    if "--entrypoint" in given:
        os.execvp(given["--entrypoint"][0], given["--entrypoint"] + command)
    variables = {{}}
    for name, equals, value in (entry.partition("=") for entry in given["--env"]):
        if equals or name in os.environ:
            variables[name] = value if equals else os.environ[name]
    (name,), (label,) = given["--name"], given["--label"]
    home = os.path.join(CONTAINERS, name)
    os.makedirs(home)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: os.kill(int(read(name, "pid")), number))
    request = {{"command": command, "label": label, "env": variables, "folder": given["--workdir"][0]}}
    with open(os.path.join(home, "new"), "w") as stream:
        json.dump(request, stream)
    os.rename(os.path.join(home, "new"), os.path.join(home, "request"))
    while not read(name, "pid"):
        time.sleep(0.01)
    streams = [(open(os.path.join(home, "out"), "rb"), 1), (open(os.path.join(home, "err"), "rb"), 2)]
    code = ""
    while not code:
        code = read(name, "code")
        for stream, handle in streams:
            os.write(handle, stream.read())
        time.sleep(0.02)
    remove(name)
    sys.exit(int(code))

def kill(name):
    if (pid := read(name, "pid")) and not read(name, "code"):
        os.kill(int(pid), signal.SIGKILL)

def remove(name):
    os.makedirs(os.path.join(STATE, "removed"), exist_ok=True)
    if os.path.isdir(os.path.join(CONTAINERS, name)):
        os.rename(os.path.join(CONTAINERS, name), os.path.join(STATE, "removed", name))

with open(os.path.join(STATE, "calls"), "a") as stream:
    stream.write(json.dumps({{"pid": os.getpid(), "argv": sys.argv[1:]}}) + "\\n")
verb, *rest = sys.argv[1:]
if verb == "run":
    run(rest)
elif verb == "kill":
    kill(rest[0])
elif verb == "rm":
    if not os.path.isdir(os.path.join(CONTAINERS, rest[1])):
        sys.exit(f"Error response from daemon: No such container: {{rest[1]}}")
    kill(rest[1])
    remove(rest[1])
elif verb == "ps":
    assert rest[:2] == ["--all", "--filter"] and rest[3:] == ["--format", "{{{{.Names}}}}"], rest
    key, _, value = rest[2].partition("=")
    for name in os.listdir(CONTAINERS):
        label = json.loads(read(name, "request"))["label"]
        if value in name if key == "name" else label.startswith(f"{{value}}="):
            print(name)
elif verb == "inspect":
    assert rest[:2] == ["--format", '{{{{index .Config.Labels "miles-ci"}}}}'], rest
    print(json.loads(read(rest[2], "request"))["label"].partition("=")[2])
"""

DAEMON = """
import json, os, subprocess, sys, time
state, path = sys.argv[1:]
containers = os.path.join(state, "containers")
running = {}
while True:
    for name in os.listdir(containers):
        home = os.path.join(containers, name)
        if name in running or not os.path.exists(os.path.join(home, "request")):
            continue
        with open(os.path.join(home, "request")) as stream:
            asked = json.load(stream)
        running[name] = subprocess.Popen(
            asked["command"],
            cwd=asked["folder"],
            env={"PATH": path, "HOME": state, **asked["env"]},
            stdin=subprocess.DEVNULL,
            stdout=open(os.path.join(home, "out"), "wb"),
            stderr=open(os.path.join(home, "err"), "wb"),
            start_new_session=True,
        )
        with open(os.path.join(home, "pid.new"), "w") as stream:
            stream.write(str(running[name].pid))
        os.rename(os.path.join(home, "pid.new"), os.path.join(home, "pid"))
    for name, child in running.items():
        if child.poll() is not None and os.path.isdir(os.path.join(containers, name)):
            code = child.returncode if child.returncode >= 0 else 128 - child.returncode
            try:
                with open(os.path.join(containers, name, "code"), "w") as stream:
                    stream.write(str(code))
            except FileNotFoundError:
                pass
    time.sleep(0.02)
"""


class Engine:
    """The stand-in, and what came of it."""

    def __init__(self, state: Path) -> None:
        self.state, self.bin, self.image = state, state / "bin", state / "image"
        for folder in (self.bin, self.image, state / "containers"):
            folder.mkdir(parents=True)
        self.install("docker")
        self.program("python3", f'exec {sys.executable} "$@"')

    def install(self, name: str) -> None:
        (self.bin / name).write_text(CLIENT.format(python=sys.executable, state=str(self.state)))
        (self.bin / name).chmod(0o755)

    def program(self, name: str, script: str) -> None:
        """A program of the image."""
        (self.image / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.image / name).chmod(0o755)

    @property
    def path(self) -> str:
        return f"{self.bin}:{os.environ['PATH']}"

    @property
    def calls(self) -> list[dict[str, Any]]:
        file = self.state / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def runs(self) -> list[dict[str, Any]]:
        return [call for call in self.calls if call["argv"][0] == "run"]

    @property
    def containers(self) -> list[str]:
        """Names of those that are there."""
        return sorted(os.listdir(self.state / "containers"))

    def pid(self, name: str) -> int:
        """The first process of a container, there or removed."""
        for folder in ("containers", "removed"):
            if (file := self.state / folder / name / "pid").exists():
                return int(file.read_text())
        raise LookupError(name)


@contextmanager
def running_engine(state: Path) -> Iterator[Engine]:
    engine = Engine(state)
    path = f"{engine.image}:/usr/local/bin:/usr/bin:/bin"
    daemon = subprocess.Popen([sys.executable, "-c", DAEMON, str(state), path])
    try:
        yield engine
    finally:
        for name in engine.containers:
            subprocess.run([engine.bin / "docker", "rm", "--force", name], check=False)
            wait_for(lambda name=name: not Path(f"/proc/{engine.pid(name)}/cwd").exists())  # type: ignore[misc]
        daemon.kill()
        daemon.wait()
