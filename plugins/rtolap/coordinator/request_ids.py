"""The id under which a request is kept, as a route's parameter. See `protocols.rest.request_ids`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Header

from rtolap.protocols.rest.request_ids import HEADER, checked_request_id


def request_id(value: Annotated[str | None, Header(alias=HEADER)] = None) -> str | None:
    return checked_request_id(value)


RequestId = Annotated[str | None, Depends(request_id)]
