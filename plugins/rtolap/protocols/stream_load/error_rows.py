"""Rejected rows of a load, read from the server that took its body: the rows, each with its reason."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import msgspec

from rtolap.base.errors import NotFound, Unavailable
from rtolap.base.tls import trust
from rtolap.protocols.rest.clients import beginning_of, service_client

BYTES_MAX = 2 << 20  # a file ends at 1 MiB, with its last row
# A row may hold line breaks: the next one begins with its reason, and the last line says what was left out.
_END = re.compile(r"; \n(?=Reason: |\d+ more rows were rejected|\Z)")
_ROW = re.compile(r"Reason: (?P<reason>.*?)\. src line \[(?P<row>.*)\]\Z", re.DOTALL)
_LEFT_OUT = re.compile(r"(?P<number>\d+) more rows were rejected")


class ErrorRow(msgspec.Struct, frozen=True):
    """A rejected row as it came, and why."""

    row: str
    reason: str


class ErrorRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rejected rows of a load.

    Attributes:
        rows: the first ones, as far as they were kept.
        left_out: how many more were rejected.
    """

    rows: tuple[ErrorRow, ...]
    left_out: int = 0


def read_error_rows(url: str, *, ca_file: Path | None, timeout_s: float) -> ErrorRows:
    """Return the rejected rows at the address that a load was answered with. No credentials are sent: who
    knows the address may read them. Raises NotFound once they are gone, and Unavailable."""
    try:
        with (
            service_client(timeout=timeout_s, verify=trust(ca_file)) as client,
            client.stream("GET", url) as response,
        ):
            if response.status_code == httpx.codes.NOT_FOUND:
                raise NotFound("the rejected rows of this load are gone", action="they are kept for 2 days")
            if response.status_code != httpx.codes.OK:
                raise Unavailable("rejected rows cannot be read", found=f"HTTP {response.status_code}")
            taken = beginning_of(response, BYTES_MAX)
    except httpx.HTTPError as error:
        raise Unavailable(
            "the server that has the rejected rows does not answer", found=str(error)
        ) from error
    return parsed(taken.decode("utf-8", "replace"))


def parsed(text: str) -> ErrorRows:
    """Return the rows of an error file."""
    rows: list[ErrorRow] = []
    left_out = 0
    for line in _END.split(text):
        if found := _ROW.match(line):
            rows.append(ErrorRow(found["row"], found["reason"]))
        elif cut := _LEFT_OUT.match(line):
            left_out = int(cut["number"])
        elif line.strip():
            rows.append(ErrorRow(line, ""))
    return ErrorRows(rows=tuple(rows), left_out=left_out)
