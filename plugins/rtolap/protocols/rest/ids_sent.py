"""Ids and the parent of spans in the requests of HTTP clients: see `base.ids` and `base.spans`.

For clients of the product's own services.
"""

from __future__ import annotations

from typing import Any, Final

import httpx

from rtolap.base.spans import sent_headers


def _send(request: httpx.Request) -> None:
    request.headers.update(sent_headers())


async def _send_async(request: httpx.Request) -> None:
    _send(request)


SENDS_IDS: Final[dict[str, list[Any]]] = {"request": [_send]}
SENDS_IDS_ASYNC: Final[dict[str, list[Any]]] = {"request": [_send_async]}
