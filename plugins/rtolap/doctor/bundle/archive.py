"""The file of a bundle: for its owner alone, bounded, with a manifest."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any, Literal

import msgspec

from rtolap.base.errors import AlreadyExists, RtolapError
from rtolap.doctor.bundle.masking import Mask

MEMBER_BYTES_MAX = 16 << 20
BUNDLE_BYTES_MAX = 128 << 20  # before compression


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the manifest.

    Attributes:
        name: the member, or what it would have been called.
        outcome: `partial` for a member that lacks something.
        reason: why it is missing, or what it lacks; empty for a whole member.
    """

    name: str
    outcome: Literal["included", "partial", "missing"]
    size_bytes: int = 0
    reason: str = ""


class Archive:
    """Collects masked members. `write` makes the file of them."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._members: list[tuple[str, bytes]] = []
        self._left = BUNDLE_BYTES_MAX
        self.entries: list[Entry] = []

    def add_text(self, name: str, text: str, lacks: str = "") -> None:
        self._add(name, self._mask.text(text).encode(), lacks)

    def add_value(self, name: str, value: Any) -> None:
        """Add a plain value as JSON."""
        masked = self._mask.value(msgspec.to_builtins(value, enc_hook=_plain))
        self._add(name, msgspec.json.format(msgspec.json.encode(masked), indent=2), "")

    def add_missing(self, name: str, reason: str) -> None:
        shown = self._mask.text(name), self._mask.text(reason)
        self.entries.append(Entry(name=shown[0], outcome="missing", reason=shown[1]))

    def _add(self, name: str, data: bytes, lacks: str) -> None:
        if len(data) > min(MEMBER_BYTES_MAX, self._left):
            self.add_missing(name, f"its {len(data)} bytes are more than the bundle has room for")
            return
        if self._mask.finds_known(data.decode()):
            self.add_missing(name, "it held a secret after it was masked")
            return
        self._left -= len(data)
        name = self._mask.text(name)
        self._members.append((name, data))
        outcome: Literal["partial", "included"] = "partial" if lacks else "included"
        self.entries.append(
            Entry(name=name, outcome=outcome, size_bytes=len(data), reason=self._mask.text(lacks))
        )

    def write(self, path: Path) -> None:
        """Write the file, which its owner alone may read. Raises AlreadyExists, RtolapError."""
        manifest = msgspec.json.format(msgspec.json.encode({"entries": self.entries}), indent=2)
        try:
            opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise AlreadyExists(f"{path} exists", action="name another file with --output") from None
        except OSError as error:
            raise RtolapError(f"{path} cannot be written", found=error.strerror) from error
        try:
            with os.fdopen(opened, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
                for name, data in (("manifest.json", manifest), *self._members):
                    member = tarfile.TarInfo(f"rtolap-support/{name}")
                    member.size, member.mode = len(data), 0o600
                    archive.addfile(member, io.BytesIO(data))
        except OSError as error:
            path.unlink(missing_ok=True)
            raise RtolapError(f"{path} cannot be written", found=error.strerror) from error


def _plain(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if dump is not None else str(value)
