"""A client of SQL over HTTP, in Arrow, so that every value keeps its type."""

from __future__ import annotations

from typing import NamedTuple

import httpx
import msgspec
import pyarrow as pa

from rtolap.base.errors import RtolapError, Unavailable, from_dict
from rtolap.demo.recount import Rows, normal

_TIMEOUT_S = 60.0
_ARROW = "application/vnd.apache.arrow.stream"
_POSITIONS_KEY = b"rtolap.positions"


class Answer(NamedTuple):
    """`positions`: partition → next offset; the rows hold exactly the events below."""

    rows: Rows
    positions: dict[int, int]


class SqlClient:
    def __init__(self, url: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}", "Accept": _ARROW}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT_S)

    def ask(self, sql: str, cube: str) -> Answer:
        """Raises the error that the query service names, or Unavailable."""
        try:
            response = self._http.post("/api/v1/query", json={"sql": sql})
        except httpx.TransportError as error:
            raise Unavailable("the query service does not answer", found=str(error)) from error
        if response.is_error:
            raise _error(response)
        table = pa.ipc.open_stream(response.content).read_all()
        stated = (table.schema.metadata or {})[_POSITIONS_KEY]
        positions = msgspec.json.decode(stated, type=dict[str, dict[int, int]])
        return Answer(normal([tuple(row.values()) for row in table.to_pylist()]), positions.get(cube, {}))

    def close(self) -> None:
        self._http.close()


def _error(response: httpx.Response) -> RtolapError:
    try:
        return from_dict(msgspec.json.decode(response.content))
    except (msgspec.DecodeError, AttributeError):
        return RtolapError("the query service refused", found=f"{response.status_code} {response.text[:300]}")
