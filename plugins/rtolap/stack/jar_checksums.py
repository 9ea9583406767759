"""Checksums of the jars of the stack's own set-up: files beside this one, as `sha256sum` writes them.

Somebody between this machine and Maven Central could serve other jars. After a change of
`artifacts._DEPENDENCIES`, `python -m rtolap.stack.jar_checksums FOLDER` prints those of a fetched folder.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

from rtolap.base.errors import Corrupted

_FOLDER = Path(__file__).parent
STACK = _FOLDER / "stack_jars.sha256"
HBASE = _FOLDER / "hbase_jars.sha256"


def listed(file: Path) -> dict[str, str]:
    """Return the digests of a list, by the path of each jar below its folder."""
    return {path: digest for digest, path in (line.split() for line in file.read_text().splitlines())}


def verify(folder: Path, expected: Mapping[str, str]) -> None:
    """Raise Corrupted, naming a jar that differs, is missing or is not expected."""
    found = measured(folder)
    for path in sorted(found.keys() | expected.keys()):
        if found.get(path) != expected.get(path):
            raise Corrupted(
                f"the jar {path} is not the one that was to be fetched",
                expected=f"SHA-256 {expected[path]}" if path in expected else "no such jar",
                found=found.get(path, "none"),
                action="look at the mirror (RTOLAP_MAVEN_MIRROR): nothing of what was fetched is kept",
            )


def measured(folder: Path) -> dict[str, str]:
    return {jar.relative_to(folder).as_posix(): _sha256(jar) for jar in sorted(folder.glob("*/*"))}


def _sha256(jar: Path) -> str:
    with jar.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    for path, digest in measured(Path(sys.argv[1])).items():
        print(f"{digest}  {path}")
