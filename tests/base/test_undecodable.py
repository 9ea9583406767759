"""Deep nesting ends msgspec by an error of another kind: what clients send is caught by one name."""

from __future__ import annotations

import msgspec
import pytest
from rtolap.base.errors import Corrupted, QueryError
from rtolap.base.undecodable import UNDECODABLE, decode_own
from rtolap.servers.flight_server import body_of


class Body(msgspec.Struct):
    cube: str


@pytest.mark.parametrize("sent", [b"{", b"[]", b'{"cube": "\xff"}', b'{"x": ' + b"[" * 100_000], ids=range(4))
def test_whatever_is_no_request_is_told_as_one_error(sent: bytes) -> None:
    with pytest.raises(UNDECODABLE):
        msgspec.json.decode(sent, type=Body)
    with pytest.raises(QueryError, match="the request is not a Body"):
        body_of(sent, Body)
    with pytest.raises(Corrupted, match=r"the file is damaged.*remove it"):
        decode_own(sent, Body, "the file is damaged", action="remove it")
