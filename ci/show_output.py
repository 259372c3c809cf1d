"""A child's output on our own stdout: bounded, without terminal tricks, inert in GitHub Actions."""

import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Mapping
from typing import BinaryIO

_LINE = 4000
_REDRAW = 0.1
# CSI sequences that do anything but colour, OSC and other escapes, and control characters
_ESCAPES = re.compile(
    rb"\x1b\[[0-9;:]*m|\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-_]?"
    rb"|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]"
)
# the same controls as single characters, which terminals also obey; only visible after decoding
_C1 = re.compile("[\x80-\x9f]")


class Output:
    """Writes lines of a child, our own lines, and on a terminal one live line below them.

    Not for two children at once. A closed stdout ends the writing, not the run.
    """

    def __init__(self, stream: BinaryIO | None = None, *, environ: Mapping[str, str] = os.environ) -> None:
        self._stream = stream or sys.stdout.buffer
        self._partial = bytearray()
        self._dropped = 0
        self._live = ""
        self._drawn_at = 0.0
        self._is_drawn = False
        self._open = True
        self._actions = environ.get("GITHUB_ACTIONS") == "true"
        self._terminal = self._stream.isatty() and environ.get("TERM") not in {None, "dumb"} and not self._actions
        self._colour = self._terminal and not environ.get("NO_COLOR")
        self._token = ""

    def begin(self, title: str) -> None:
        """The child's output follows: in GitHub Actions a group, in which the runner takes no commands."""
        if self._actions:
            self._token = secrets.token_hex(16)
            self._write(f"::group::{title}\n::stop-commands::{self._token}\n".encode())

    def end(self) -> None:
        """The child's output is over."""
        self._flush_partial()
        if self._token:
            self._write(f"::{self._token}::\n::endgroup::\n".encode())
            self._token = ""

    def feed(self, chunk: bytes) -> None:
        """Output of the child; whole lines are shown, a longer one is cut and counted."""
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            self._extend(line)
            self._flush_line()
        self._extend(rest)

    def line(self, text: str) -> None:
        """One line of our own."""
        self._flush_partial()
        self._write(text.encode("utf-8", "backslashreplace") + b"\n")
        self._redraw(force=True)

    def live(self, text: str) -> None:
        """The line at the bottom of a terminal; elsewhere nothing."""
        self._live = text
        self._redraw()

    def _extend(self, data: bytes) -> None:
        # a progress bar redraws its line: what stood before the last carriage return is not to be seen
        if self._partial.endswith(b"\r") and data.strip(b"\r"):
            self._partial.clear()
            self._dropped = 0
        if (last := data.rstrip(b"\r").rfind(b"\r")) >= 0:
            self._partial.clear()
            self._dropped = 0
            data = data[last + 1 :]
        room = _LINE - len(self._partial)
        self._partial += data[:room]
        self._dropped += max(0, len(data) - room)

    def _flush_partial(self) -> None:
        if self._partial or self._dropped:
            self._flush_line()

    def _flush_line(self) -> None:
        text = self._clean(bytes(self._partial))
        if self._dropped:
            text += f" … ({self._dropped} bytes more in the log)"
        self._partial.clear()
        self._dropped = 0
        self._write(text.encode() + b"\n")
        self._redraw()

    def _clean(self, line: bytes) -> str:
        def keep_colour(match: re.Match[bytes]) -> bytes:
            return match[0] if self._colour and match[0].endswith(b"m") and match[0].startswith(b"\x1b[") else b""

        text = _C1.sub("", _ESCAPES.sub(keep_colour, line).decode("utf-8", "replace"))
        # the web page folds groups by this mark wherever it stands, commands stopped or not
        return text.replace("##[", "#\\#[") if self._actions else text

    def _write(self, data: bytes) -> None:
        if not self._open:
            return
        erase = b"\r\x1b[K" if self._is_drawn else b""
        self._is_drawn = False
        try:
            self._stream.write(erase + data)
            self._stream.flush()
        except OSError:
            self._open = False

    def _redraw(self, *, force: bool = False) -> None:
        if not (self._terminal and self._live and self._open):
            return
        now = time.monotonic()
        if force or now - self._drawn_at >= _REDRAW:
            width = shutil.get_terminal_size().columns - 1
            try:
                self._stream.write(b"\r\x1b[K" + self._live[:width].encode("utf-8", "replace"))
                self._stream.flush()
            except OSError:
                self._open = False
            self._drawn_at, self._is_drawn = now, True

    def clear(self) -> None:
        """Take the live line away."""
        self._live = ""
        self._write(b"")
