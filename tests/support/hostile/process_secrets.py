"""Secrets in what the system shows of processes: their environment, and their command lines."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path

import psutil

_CHARS_MIN = 16  # shorter words are no secrets of a stack


def secret_words(folder: Path) -> set[str]:
    """Return the long words in the files of a folder: the secrets themselves, without what stands beside."""
    words: set[str] = set()
    for path in folder.rglob("*"):
        if path.is_file():
            words |= {word for word in re.split(r'[\s":,{}]+', path.read_text()) if len(word) >= _CHARS_MIN}
    return words


def readable(processes: Iterable[psutil.Process]) -> dict[psutil.Process, str]:
    """Return environment and command line of those processes that still run, as /proc shows them."""
    texts = {}
    for process in processes:
        try:
            files = [Path(f"/proc/{process.pid}/{name}").read_bytes() for name in ("environ", "cmdline")]
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        if files[0]:
            texts[process] = b"\0".join(files).decode("utf-8", "replace")
    return texts


def showing(texts: Iterable[tuple[psutil.Process, str]], secrets: Collection[str]) -> list[str]:
    """Return the command lines of processes of which a secret can be read, the secret left out."""
    return [
        f"{process.pid} {process.name()}"
        for process, text in texts
        if any(secret in text for secret in secrets)
    ]
