"""This machine: Java, open files, disks, and files with secrets."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from rtolap.base.errors import DefinitionError
from rtolap.base.operator_files import read_secret
from rtolap.base.settings import Settings
from rtolap.doctor.findings import Finding, Look, failed, ok, warning

JAVA_MIN = 17
OPEN_FILES_MIN = 4096
FREE_BYTES_MIN = 1 << 30
FREE_SHARE_MIN = 0.05
_JAVA_S_MAX = 10.0
_OTHERS = 0o077


def looks(settings: Settings) -> Iterator[Look]:
    """Give the looks at this machine."""
    yield Look("Java", look_at_java)
    yield Look("open files", lambda: look_at_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    yield Look("folder of data", lambda: look_at_folder("folder of data", settings.data_dir))
    scheme, _, path = settings.object_store.partition("://")
    if scheme == "file":
        yield Look("object store's disk", lambda: look_at_folder("object store's disk", Path(path)))
    yield Look("cluster token", lambda: _secret("cluster token", settings.token_file, "RTOLAP_TOKEN_FILE"))


def look_at_java(home: str | None = None) -> Iterator[Finding]:
    """Java is there for builds by Spark. home: None takes JAVA_HOME, else the PATH."""
    home = os.environ.get("JAVA_HOME", "") if home is None else home
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    action = "apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
    if java is None or not Path(java).exists():
        yield warning("Java", "none found; this host cannot build by Spark", action)
        return
    said = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=_JAVA_S_MAX, check=False
    )
    number = re.search(r'version "(\d+)', said.stderr)
    if number is None or int(number[1]) < JAVA_MIN:
        found = said.stderr.strip().splitlines()
        yield warning(
            "Java", f"{found[0] if found else 'no version'}; builds need {JAVA_MIN} or newer", action
        )
        return
    yield ok("Java", f"version {number[1]}")


def look_at_open_files(limit: int) -> Iterator[Finding]:
    """Each fragment, connection and partition is a file: services need many."""
    if limit != resource.RLIM_INFINITY and limit < OPEN_FILES_MIN:
        action = "ulimit -n 65536, or LimitNOFILE=65536 in its unit"
        yield warning("open files", f"a process may open {limit}, {OPEN_FILES_MIN} are needed", action)
    else:
        yield ok("open files", f"a process may open {limit if limit >= 0 else 'any number'}")


def look_at_folder(
    subject: str, folder: Path, usage: Callable[[Path], tuple[int, int, int]] = shutil.disk_usage
) -> Iterator[Finding]:
    """The folder can be written to, and its disk has room.

    usage: of a folder, the disk's bytes in all, used and free.
    """
    existing = next((each for each in (folder, *folder.parents) if each.exists()), Path("/"))
    if not os.access(existing, os.W_OK | os.X_OK):
        yield failed(subject, f"{existing} cannot be written to", f"chown -R $(id -un) {existing}")
        return
    total, _, free = usage(existing)
    found = f"{folder}: {free / (1 << 30):.1f} of {total / (1 << 30):.1f} GiB are free"
    if free < FREE_BYTES_MIN:
        yield failed(subject, found, "make room: services stop when they cannot write")
    elif free < FREE_SHARE_MIN * total:
        yield warning(subject, found, "make room, or shorten retention")
    else:
        yield ok(subject, found)


def _secret(subject: str, path: Path, variable: str) -> Iterator[Finding]:
    try:
        read_secret(path, subject)
    except DefinitionError as error:
        judged = warning if path.is_file() and path.stat().st_mode & _OTHERS else failed
        yield judged(subject, error.message, error.action or f"create it for this user, or set {variable}")
    else:
        yield ok(subject, f"{path} is this user's alone")
