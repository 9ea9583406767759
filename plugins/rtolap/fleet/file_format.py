"""The common part of the files of snapshots and plans: reading, versions and detection of damage.

Each file is or contains a JSON document. Its `format` and `version` are checked first, so that they alone
identify a file of a newer program.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

import msgspec

from rtolap.base.decoding import decode_json
from rtolap.base.errors import Corrupted, SchemaTooNew
from rtolap.base.files import read_named, write_named

Header = TypeVar("Header")


class _Version(msgspec.Struct):
    format: str
    version: int


@dataclass(frozen=True)
class FileFormat:
    """A format of files.

    Attributes:
        name: The `format` of the document.
        version: The `version` of the document.
        noun: The content of a file, for messages.
    """

    name: str
    version: int
    noun: str

    def write(self, path: Path, data: bytes) -> None:
        """Write the file. Raises RtolapError where no file can be written."""
        write_named(path, data)

    def read(self, path: Path) -> bytes:
        """Read the file. Raises NotFound, and RtolapError where it cannot be read."""
        return read_named(path, self.noun)

    def decode(self, data: bytes, header: type[Header], file: str) -> Header:
        """Return the JSON document of `file`, which messages name.

        Raises SchemaTooNew for a later version, and Corrupted for any other document.
        """
        try:
            found = decode_json(data, _Version)
            if found.format == self.name and found.version > self.version:
                raise SchemaTooNew(
                    f"{file} was written by a newer program",
                    expected=f"version {self.version} or earlier",
                    found=f"version {found.version}",
                )
            if (found.format, found.version) != (self.name, self.version):
                self.damaged(file, f"{found.format!r} of version {found.version}")
            return decode_json(data, header)
        except msgspec.DecodeError as error:
            self.damaged(file, str(error), error)

    def damaged(self, file: str, problem: str, cause: Exception | None = None) -> NoReturn:
        raise Corrupted(
            f"{file} is no readable {self.noun}",
            expected=f"{self.name}, version {self.version}",
            found=problem,
        ) from cause
