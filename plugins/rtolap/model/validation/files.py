"""The files that a definition names on the host where its process runs: secrets and certificates."""

from __future__ import annotations

import stat
from pathlib import Path

from rtolap.model.loader import Loader
from rtolap.model.problems import Key, Problem
from rtolap.model.publication import Publication
from rtolap.model.subscription import Subscription

_OTHERS = stat.S_IRWXO | stat.S_IWGRP


def file_problems(definition: object) -> tuple[Problem, ...]:
    """Return what is wrong with the files that a loader, a subscription or a publication reads.

    They are not there, not readable, or, of a secret, open to everybody.
    """
    found: list[Problem] = []
    for key, path, secret in _named(definition):
        if path is not None:
            found += _of_file(key, Path(path), secret=secret)
    return tuple(found)


def _named(definition: object) -> list[tuple[Key, str | None, bool]]:
    if isinstance(definition, Loader):
        sink = definition.sink
        named: list[tuple[Key, str | None, bool]] = [
            (("sink", "password_file"), sink.password_file, True),
            (("sink", "ca_file"), sink.ca_file, False),
        ]
        if sink.partitions is not None:
            named += [
                (("sink", "partitions", "password_file"), sink.partitions.password_file, True),
                (("sink", "partitions", "ca_file"), sink.partitions.ca_file, False),
            ]
        return named
    if isinstance(definition, Subscription):
        return [(("listener", "password_file"), definition.listener.password_file, True)]
    if isinstance(definition, Publication):
        catalog = definition.catalog
        return [
            (("catalog", "password_file"), catalog.password_file, True),
            (("catalog", "token_file"), catalog.token_file, True),
            (("catalog", "ca_file"), catalog.ca_file, False),
        ]
    return []


def _of_file(key: Key, path: Path, *, secret: bool) -> list[Problem]:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            return [Problem(key, "no file", expected="a readable file", found=str(path))]
        path.open("rb").close()
    except OSError as error:
        return [
            Problem(key, "cannot be read", expected=f"a readable file {path}", found=error.strerror or "")
        ]
    if secret and mode & _OTHERS:
        return [
            Problem(
                key,
                "the secret is not private",
                expected=f"{path} for its owner, and its group at most to read",
                found=stat.filemode(mode),
                hint=f"chmod 600 {path}",
            )
        ]
    return []
