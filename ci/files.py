"""Writing files so that a reader sees the old or the new one, whole."""

import os
import tempfile
from pathlib import Path


def replace_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` beside the file and put it in its place.

    Raises:
        OSError: the folder cannot be written; the old file stays.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def replace_text(path: Path, content: str) -> None:
    """``replace_bytes`` of UTF-8 text; surrogates of file names survive."""
    replace_bytes(path, content.encode("utf-8", "surrogateescape"))
