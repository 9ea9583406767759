"""Messages of a front end's own routes: bodies in JSON, and answers."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from fastapi import Depends, Header, Response

from rtolap.base.decoding import decode_json
from rtolap.base.errors import DefinitionError
from rtolap.base.undecodable import UNDECODABLE
from rtolap.protocols.rest.request_ids import HEADER, checked_request_id

T = TypeVar("T")


def _request_id(value: Annotated[str | None, Header(alias=HEADER)] = None) -> str | None:
    return checked_request_id(value)


RequestId = Annotated[str | None, Depends(_request_id)]


def read_body(body: bytes, kind: type[T], what: str = "the request") -> T:
    """Return the body. Raises DefinitionError for one of another kind. The guard bounds its length."""
    try:
        return decode_json(body, kind)
    except UNDECODABLE as error:
        raise DefinitionError(f"{what} cannot be read", found=str(error)) from error


def json_answer(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
