"""What tests of registries share: Debian's registry on loopback, images to put there, and a server that misbehaves."""

import base64
import hashlib
import json
import re
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests

USER, PASSWORD = "releaser", "käse:4711"
OCI = "application/vnd.oci.image"
DOCKER = "application/vnd.docker"


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@contextmanager
def real_registry(folder: Path, *, password: bool) -> Iterator[str]:
    """Debian's registry on a free port; host and port."""
    for program in ("docker-registry", "htpasswd", "skopeo"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (.ci/run has the packages)")
    auth = {}
    if password:
        entry = subprocess.run(
            ["htpasswd", "-niB", "-C", "4", USER], input=PASSWORD, check=True, capture_output=True, text=True
        )
        (folder / "htpasswd").write_text(entry.stdout)
        auth = {"auth": {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}}
    config = {
        "version": 0.1,
        "log": {"accesslog": {"disabled": True}, "level": "info"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": "127.0.0.1:0"},
        **auth,
    }
    (folder / "config.yml").write_text(json.dumps(config))
    log = folder / "log"
    with log.open("wb") as output:
        # it ends with the tests, however they end
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "docker-registry", "serve", str(folder / "config.yml")],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    try:
        yield f"127.0.0.1:{_port(process, log)}"
    finally:
        process.kill()
        process.wait()


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    until = time.monotonic() + 30
    while time.monotonic() < until and process.poll() is None:
        if (found := re.search(r"listening on 127\.0\.0\.1:([0-9]+)[^0-9]", log.read_text())) is not None:
            return int(found[1])
        time.sleep(0.02)
    pytest.fail(f"docker-registry did not start: {log.read_text()}")


@dataclass
class Uploads:
    """Puts blobs and manifests into a repository, with plain requests and none of our own code."""

    host: str
    repository: str
    headers: dict[str, str] = field(default_factory=dict)

    def blob(self, data: bytes, media_type: str) -> dict[str, Any]:
        base = f"http://{self.host}/v2/{self.repository}/blobs/uploads/"
        started = requests.post(base, headers=self.headers, timeout=30)
        started.raise_for_status()
        location = started.headers["Location"]
        ended = requests.put(location, params={"digest": digest(data)}, data=data, headers=self.headers, timeout=30)
        ended.raise_for_status()
        return {"mediaType": media_type, "digest": digest(data), "size": len(data)}

    def manifest(self, document: dict[str, Any], media_type: str, tag: str | None = None) -> bytes:
        """Exactly these bytes, which no JSON writer would write again: their digest is the point."""
        data = json.dumps(document, indent=3).encode() + b"\n\n"
        url = f"http://{self.host}/v2/{self.repository}/manifests/{tag or digest(data)}"
        answer = requests.put(url, data=data, headers={"Content-Type": media_type, **self.headers}, timeout=30)
        assert answer.status_code == 201, answer.text
        return data

    def image(
        self, architecture: str, labels: dict[str, str] | None, *, docker: bool = False, tag: str | None = None
    ) -> bytes:
        config = {
            "architecture": architecture,
            "os": "linux",
            "config": {"Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": []},
        }
        kinds = (
            (f"{DOCKER}.container.image.v1+json", f"{DOCKER}.image.rootfs.diff.tar.gzip")
            if docker
            else (f"{OCI}.config.v1+json", f"{OCI}.layer.v1.tar+gzip")
        )
        media_type = image_type(docker=docker)
        document = {
            "schemaVersion": 2,
            "mediaType": media_type,
            "config": self.blob(json.dumps(config).encode(), kinds[0]),
            "layers": [self.blob(f"layer of {architecture}".encode(), kinds[1])],
        }
        return self.manifest(document, media_type, tag)

    def attestation(self, of: bytes) -> dict[str, Any]:
        """The entry of an attestation as BuildKit makes it."""
        document = {
            "schemaVersion": 2,
            "mediaType": image_type(docker=False),
            "config": self.blob(b'{"architecture":"unknown","os":"unknown"}', f"{OCI}.config.v1+json"),
            "layers": [self.blob(b'{"_type":"https://in-toto.io/Statement/v0.1"}', "application/vnd.in-toto+json")],
        }
        entry = listed(self.manifest(document, image_type(docker=False)), "unknown", docker=False)
        entry["platform"] = {"architecture": "unknown", "os": "unknown"}
        entry["annotations"] = {
            "vnd.docker.reference.digest": digest(of),
            "vnd.docker.reference.type": "attestation-manifest",
        }
        return entry

    def index(self, entries: list[dict[str, Any]], tag: str, *, docker: bool = False) -> bytes:
        media_type = index_type(docker=docker)
        return self.manifest({"schemaVersion": 2, "mediaType": media_type, "manifests": entries}, media_type, tag)


def image_type(*, docker: bool) -> str:
    return f"{DOCKER}.distribution.manifest.v2+json" if docker else f"{OCI}.manifest.v1+json"


def index_type(*, docker: bool) -> str:
    return f"{DOCKER}.distribution.manifest.list.v2+json" if docker else f"{OCI}.index.v1+json"


def listed(data: bytes, architecture: str, *, docker: bool, variant: str | None = None) -> dict[str, Any]:
    """The entry of an image in an index."""
    platform = {"architecture": architecture, "os": "linux"} | ({"variant": variant} if variant else {})
    return {"mediaType": image_type(docker=docker), "digest": digest(data), "size": len(data), "platform": platform}


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@dataclass(frozen=True)
class Says:
    """One answer. ``length``: the Content-Length to claim; ``hangs``: it never comes; ``trickles``: it never ends."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    hangs: bool = False
    trickles: bool = False


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    authorization: str | None
    body: bytes


class StandIn:
    """A server that gives the answers it was told to, the last one again and again, and notes what it is asked."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.answers: dict[tuple[str, str], list[Says]] = {}
        self.asked: list[Asked] = []
        self._ended = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign] # clients that hang up are expected
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        self.host = f"127.0.0.1:{self._server.server_address[1]}"

    def on(self, path: str, *answers: Says, method: str = "GET") -> None:
        """``path`` without its query."""
        self.answers[method, path] = list(answers)

    def paths(self) -> list[str]:
        return [asked.path.partition("?")[0] for asked in self.asked]

    def end(self) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stand_in._answer(self)

            do_PUT = do_POST = do_GET  # noqa: N815 - the names that the base class wants

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        return Handler

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.asked.append(Asked(request.command, request.path, request.headers.get("Authorization"), body))
        answers = self.answers.get((request.command, request.path.partition("?")[0]), [Says(status=418)])
        says = answers.pop(0) if len(answers) > 1 else answers[0]
        if says.hangs:
            self._ended.wait(60)
            return
        request.send_response(says.status)
        for name, value in says.headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(says.body) if says.length is None else says.length))
        request.end_headers()
        request.wfile.write(says.body)
        while says.trickles and not self._ended.wait(0.05):
            request.wfile.write(b" ")
            request.wfile.flush()
