"""Frames, byte for byte as HBase reads and writes them."""

from __future__ import annotations

import pytest
from rtolap.base.errors import Corrupted, DefinitionError, Unauthorized
from rtolap.sep.consumer.frames import (
    NO_CALL,
    check_preamble,
    exception_frame,
    parse_request,
    result_frame,
)
from rtolap.sep.consumer.limits import ConsumerSettings

from tests.support.sep.replication_client import request


def test_success_of_a_call_names_its_id_and_has_an_empty_result() -> None:
    assert result_frame(1) == bytes.fromhex("00000004 02 0801 00")
    assert result_frame(0) == bytes.fromhex("00000004 02 0800 00")
    assert result_frame(300, b"x" * 200)[:8] == bytes.fromhex("000000ce 03 08ac02")


def test_an_exception_has_no_result() -> None:
    frame = exception_frame(2, "java.io.IOException", "no")
    assert frame[:4] == (len(frame) - 4).to_bytes(4, "big")
    assert b"java.io.IOException: no" in frame
    assert exception_frame(NO_CALL, "E", "m")[5:11] == bytes.fromhex("08 ffffffff0f")


def test_preambles_are_told_apart() -> None:
    check_preamble(b"HBas\x00\x50")
    for login in (b"Securi", b"HBas\x00\x51", b"HBas\x00\x52"):
        with pytest.raises(Unauthorized, match="does not speak Kerberos"):
            check_preamble(login)
    for other in (b"Regist", b"HBas\x01\x50", b"GET / ", b"\x16\x03\x01\x02\x00\x01"):
        with pytest.raises(Corrupted, match="not a client of HBase"):
            check_preamble(other)


def test_a_request_is_taken_apart_and_a_torn_one_refused_wherever_it_is_torn() -> None:
    frame = bytearray(request(7, "Method", b"p" * 200, b"cells", timeout_ms=1500)[4:])
    parsed = parse_request(frame)
    assert (parsed.call_id, parsed.method, parsed.timeout_ms) == (7, "Method", 1500)
    assert (bytes(parsed.parameter), bytes(parsed.cell_block)) == (b"p" * 200, b"cells")
    for size in range(len(frame)):
        with pytest.raises(Corrupted):
            parse_request(frame[:size])
    with pytest.raises(Corrupted, match="a request is torn"):
        parse_request(frame + b"x")
    assert parse_request(bytearray(request(0)[4:])).call_id == 0


def test_a_frame_that_could_never_be_read_is_no_setting() -> None:
    with pytest.raises(DefinitionError, match="never read its largest frame"):
        ConsumerSettings(frame_bytes_max=11, bytes_in_flight_max=10)
