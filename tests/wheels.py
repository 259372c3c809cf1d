"""Small wheels and source archives, made by hand, so that installing needs no network."""

import base64
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path


def wheel(folder: Path, name: str, version: str, *, requires: tuple[str, ...] = (), tag: str = "py3-none-any") -> str:
    """Write a wheel with one module of that name; its pin with hash."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    records = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
        records.append(f"{path},sha256={digest},{len(content)}\n")
    files[f"{info}/RECORD"] = "".join([*records, f"{info}/RECORD,,\n"])
    target = folder / f"{name}-{version}-{tag}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return pin(target, name, version)


def broken_source(folder: Path, name: str, version: str) -> str:
    """Write a source archive whose build fails; its pin with hash."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}-{version}.tar.gz"
    files = {
        "setup.py": "raise SystemExit('this build is broken')\n",
        "pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n",
        "backend.py": "def build_wheel(*a, **k):\n    raise SystemExit('this build is broken')\n",
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
    }
    with tarfile.open(target, "w:gz") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content.encode()))
    return pin(target, name, version)


def pin(file: Path, name: str, version: str) -> str:
    """``name==version`` with the hash of the file."""
    return f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n"
