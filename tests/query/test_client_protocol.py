"""What clients of the MySQL protocol were seen to send and to expect, byte by byte."""

from __future__ import annotations

import socket
import threading
from datetime import datetime, time, timedelta

import pyarrow as pa
import pytest
from rtolap.base.errors import QueryError, Refused
from rtolap.query.memory_budget import MemoryBudget
from rtolap.query.mysql import codes
from rtolap.query.mysql.answers import Answers
from rtolap.query.mysql.packets import FRAME_MAX, PacketFields, PacketStream
from rtolap.query.mysql.prepared import (
    LONG_DATA_BYTES_MAX,
    PreparedStatement,
    PreparedStatements,
    decode_parameters,
)
from rtolap.query.mysql.result_sets import binary_rows, kind_of, text_rows

NAMES = pa.schema([("name", pa.string())])
END, OPEN, AT_END = codes.STATUS_AUTOCOMMIT, codes.STATUS_CURSOR_EXISTS, codes.STATUS_LAST_ROW_SENT


class Wire:
    """A stream of packets, and what its other end receives."""

    def __init__(self) -> None:
        ours, self._theirs = socket.socketpair()
        self.stream = PacketStream(ours)

    def received(self) -> list[bytes]:
        self.stream.flush()
        self.stream.close()
        reader, packets = PacketStream(self._theirs), []
        data = b""
        while piece := self._theirs.recv(1 << 16):
            data += piece
        reader.close()
        while data:
            length = int.from_bytes(data[:3], "little")
            packets.append(data[4 : 4 + length])
            data = data[4 + length :]
        return packets


@pytest.fixture
def wire() -> Wire:
    return Wire()


def statement(*names: str) -> tuple[PreparedStatements, int]:
    prepared = PreparedStatements(MemoryBudget().account("ann"))
    return prepared, prepared.add_statement(PreparedStatement("show tables", NAMES, names))


def execution(identity: int, flags: int, rest: bytes = b"") -> PacketFields:
    return PacketFields(identity.to_bytes(4, "little") + bytes((flags, 1, 0, 0, 0)) + rest)


def status_of(packet: bytes, *, deprecate_eof: bool) -> int:
    """Of an OK packet in the place of EOF, or of EOF itself."""
    assert packet[0] == 0xFE
    return int.from_bytes(packet[3:5], "little")


@pytest.mark.parametrize("deprecate_eof", [False, True])
def test_a_cursor_over_no_rows_is_open_and_at_its_end(wire: Wire, deprecate_eof: bool) -> None:
    """Connector/J 8 takes what follows the columns for the end of COM_STMT_EXECUTE, and waits for rows."""
    answers = Answers(wire.stream, codes.DEPRECATE_EOF if deprecate_eof else 0)
    answers.result(NAMES, [], binary_rows, cursor=True)
    answers.fetched()
    packets = wire.received()
    assert packets[0] == b"\x01"
    assert [status_of(one, deprecate_eof=deprecate_eof) for one in packets[2:]] == [END | OPEN, END | AT_END]


@pytest.mark.parametrize("cursor", [False, True])
def test_rows_are_sent_at_once_whether_a_cursor_is_asked_for_or_not(wire: Wire, cursor: bool) -> None:
    answers = Answers(wire.stream, codes.DEPRECATE_EOF)
    batches = [pa.record_batch([pa.array(names)], schema=NAMES) for names in ([], ["a", None], [], ["b"])]
    answers.result(NAMES, batches, text_rows, cursor=cursor)
    packets = wire.received()
    assert packets[2:-1] == [b"\x01a", b"\xfb", b"\x01b"]
    assert status_of(packets[-1], deprecate_eof=True) == END


def test_only_a_statement_that_has_a_cursor_is_fetched_from() -> None:
    prepared, identity = statement()
    prepared.bound(execution(identity, codes.CURSOR_TYPE_READ_ONLY))
    prepared.fetched(PacketFields(identity.to_bytes(4, "little") + b"\x0a\0\0\0"))
    prepared.bound(execution(identity, 0))
    with pytest.raises(QueryError, match="has no cursor"):
        prepared.fetched(PacketFields(identity.to_bytes(4, "little") + b"\x0a\0\0\0"))


def test_nulls_alone_need_no_types() -> None:
    """Connector/J sends none before it has seen a value."""
    assert decode_parameters(PacketFields(b"\x03\0"), 2, [], {}) == ([None, None], [])
    values, known = decode_parameters(
        PacketFields(b"\x01\x01\x06\0\x08\0" + (7).to_bytes(8, "little")), 2, [], {}
    )
    assert values == [None, 7]
    assert decode_parameters(PacketFields(b"\x02\0"), 2, known, {})[0][1] is None
    with pytest.raises(QueryError, match="without types"):
        decode_parameters(PacketFields(b"\x01\0"), 2, [], {})


@pytest.mark.parametrize(
    ("code", "data"),
    [
        (codes.DATETIME, b"\x04\xff\xff\x0d\x20"),
        (codes.DATETIME, b"\x0b\xe8\x07\x01\x01\0\0\0\xff\xff\xff\xff"),
        (codes.DATE, b"\x04\0\0\0\0"),
        (codes.TIME, b"\x08\0\xff\xff\xff\xff\0\0\0"),
        (codes.NEWDECIMAL, b"\x03abc"),
        (codes.NEWDECIMAL, b"\x02\xff\xfe"),
        (codes.NEWDECIMAL, b"\x04sNaN"),
        (codes.NEWDECIMAL, b"\x08Infinity"),
    ],
)
def test_a_parameter_that_is_no_value_of_its_type_is_an_error_of_the_statement(
    code: int, data: bytes
) -> None:
    with pytest.raises(QueryError, match="bad value of parameter 1"):
        decode_parameters(PacketFields(b"\0\x01" + bytes((code, 0)) + data), 1, [], {})


def test_too_long_a_parameter_is_refused_and_never_cut() -> None:
    prepared, identity = statement("p1")
    head = identity.to_bytes(4, "little") + b"\0\0"
    prepared.long_data(PacketFields(head + bytes(LONG_DATA_BYTES_MAX)))
    prepared.long_data(PacketFields(head + b"x"))
    with pytest.raises(Refused, match="too large"):
        prepared.bound(execution(identity, 0, b"\0\x01\xfc\0"))
    prepared.long_data(PacketFields(head + b"short"))
    assert prepared.bound(execution(identity, 0, b"\0\x01\xfc\0"))[1] == ["short"]


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array([time(1, 2, 3), time(23, 59, 59, 5), None]), ["01:02:03", "23:59:59.000005", None]),
        (pa.array([timedelta(hours=-30, seconds=-1)], pa.duration("us")), ["-30:00:01"]),
        (
            pa.array([(0, 1, -3_600_000_000_000), (0, -35, 1_000), None], pa.month_day_nano_interval()),
            ["23:00:00", "-839:59:59.999999", None],
        ),
    ],
)
def test_times_and_durations_are_mysqls_time(column: pa.Array, texts: list[str | None]) -> None:
    assert kind_of(column.type).type_code == codes.TIME
    batch = pa.record_batch([column], names=["t"])
    found = [None if row == b"\xfb" else row[1:].decode() for row in text_rows(batch)]
    assert found == texts


@pytest.mark.parametrize(
    ("value", "packed"),
    [
        (timedelta(days=-2, hours=-3), bytes((8, 1)) + (2).to_bytes(4, "little") + bytes((3, 0, 0))),
        (timedelta(seconds=1, microseconds=2), bytes((12, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0))),
        (timedelta(0), b"\0"),
        (datetime(2013, 1, 2), bytes((4, 0xDD, 7, 1, 2))),
        (datetime(2013, 1, 2, 0, 0, 5), bytes((7, 0xDD, 7, 1, 2, 0, 0, 5))),
        (datetime(2013, 1, 2, 3, 4, 5, 6), bytes((11, 0xDD, 7, 1, 2, 3, 4, 5, 6, 0, 0, 0))),
    ],
)
def test_times_are_as_short_as_mysqls_in_the_binary_protocol(value: object, packed: bytes) -> None:
    kind = pa.duration("us") if isinstance(value, timedelta) else pa.timestamp("us")
    (row,) = binary_rows(pa.record_batch([pa.array([value], kind)], names=["t"]))
    assert row == b"\0\0" + packed


@pytest.mark.parametrize("size", [100, FRAME_MAX, FRAME_MAX + 1, 2 * FRAME_MAX])
def test_a_packet_above_the_limit_is_error_1153_and_the_next_one_is_read(size: int) -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(60)
    reader, writer = PacketStream(ours), PacketStream(theirs)

    def send() -> None:
        for payload in (bytes(size), bytes(size + 1), b"next"):
            writer.sequence = 0
            writer.write(payload)
        writer.flush()

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    assert len(reader.read(size)) == size
    with pytest.raises(Refused, match="packet too large") as caught:
        reader.read(size)
    assert codes.error_code(caught.value) == (1153, "08S01")
    assert reader.read(size) == b"next"
    sender.join(60)
    reader.close()
    writer.close()


def test_before_a_login_nothing_is_read_beyond_the_limit() -> None:
    ours, theirs = socket.socketpair()
    stream = PacketStream(ours)
    stream.limit_time(60)
    theirs.sendall(b"\xff\xff\xff\0")
    with pytest.raises(Refused, match="packet too large"):
        stream.read(1 << 16)
    stream.close()
    theirs.close()
