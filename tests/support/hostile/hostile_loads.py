"""Loads that nobody means: headers that contradict each other, and bodies of every format, damaged."""

from __future__ import annotations

import gzip
import io
import random
from functools import cache

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet

from tests.support.hostile.hostile_http import Body

_ROWS = pa.table({"id": [1, 2, 3], "host": ["a", None, "é"], "amount": ["1.5", "x", None]})
_HEADERS = (
    *(
        ("column_separator", ","),
        ("column_separator", "\\x"),
        ("column_separator", "0x"),
        ("column_separator", "a" * 99),
    ),
    *(
        ("line_delimiter", "\\x00"),
        ("line_delimiter", "\\n\\n"),
        ("enclose", '"'),
        ("enclose", "ab"),
        ("escape", "\\"),
    ),
    *(("skip_lines", "1"), ("skip_lines", "-1"), ("skip_lines", "9" * 20), ("trim_double_quotes", "true")),
    *(("columns", "id, host, amount"), ("columns", "id, id, id"), ("columns", "id, x, host = upper(x)")),
    *(
        ("columns", "id, host = id(id(id"),
        ("columns", "id, host = `"),
        ("columns", "(" * 200),
        ("columns", ",,,"),
    ),
    *(("columns", "id, x, host = replace(replace(x, '', x), x, x)"), ("columns", "id, host = (select 1)")),
    *(("columns", "id, host = read_text('/etc/passwd')"), ("columns", "id, host = getenv('HOME')")),
    *(("where", "id > 1"), ("where", "id > (select 1)"), ("where", "1; drop table x"), ("where", "'" * 50)),
    *(
        ("where", "id in (" + "1, " * 500 + "1)"),
        ("where", "not " * 300 + "true"),
        ("where", "host like '%%%%%%%%a'"),
    ),
    *(
        ("jsonpaths", '["$.id"]'),
        ("jsonpaths", "["),
        ("jsonpaths", '["$' + "[0]" * 200 + '"]'),
        ("jsonpaths", '["$..a"]'),
    ),
    *(
        ("json_root", "$.a"),
        ("json_root", "$" + ".a" * 300),
        ("strip_outer_array", "true"),
        ("strip_outer_array", "x"),
    ),
    *(
        ("read_json_by_line", "true"),
        ("num_as_string", "true"),
        ("max_filter_ratio", "1"),
        ("max_filter_ratio", "nan"),
    ),
    *(
        ("max_filter_ratio", "-1"),
        ("max_filter_ratio", "1e400"),
        ("strict_mode", "true"),
        ("timezone", "../../etc/passwd"),
    ),
    *(
        ("timezone", "+25:00"),
        ("timezone", "America/New_York"),
        ("timeout", "1"),
        ("timeout", "0"),
        ("timeout", "9" * 9),
    ),
    *(
        ("label", "../../../stolen"),
        ("label", "a" * 500),
        ("label", "'; drop table x"),
        ("partitions", "p1,,p2"),
    ),
    *(
        ("partitions", "*"),
        ("merge_type", "DELETE"),
        ("merge_type", "MERGE"),
        ("delete", "id = 1"),
        ("negative", "true"),
    ),
    *(("partial_columns", "true"), ("function_column.sequence_col", "id"), ("hidden_columns", "__SIGN__")),
    *(("group_commit", "x"), ("two_phase_commit", "x"), ("compress_type", "gz"), ("compress_type", "zstd")),
    *(
        ("compress_type", "lz4"),
        ("compress_type", "deflate"),
        ("compress_type", "snappy"),
        ("compress_type", "bz2"),
    ),
)
_PAGES = (b"_stream_load",)


@cache
def _bodies() -> dict[str, bytes]:
    """Return small, whole bodies by their format."""
    parquet, orc, arrow = io.BytesIO(), io.BytesIO(), io.BytesIO()
    pa.parquet.write_table(_ROWS, parquet)
    pa.orc.write_table(_ROWS, orc)
    with pa.ipc.new_stream(arrow, _ROWS.schema) as writer:
        writer.write_table(_ROWS)
    csv = b"1,a,1.5\n2,,x\n3,\xc3\xa9,\n"
    return {
        "csv": csv,
        "csv_with_names": b"id,host,amount\n" + csv,
        "csv_with_names_and_types": b"id,host,amount\nint,string,decimal\n" + csv,
        "json": b'{"id": 1, "host": "a", "amount": 1.5}\n{"id": "x", "a": [{"b": null}]}\n',
        "parquet": parquet.getvalue(),
        "arrow": arrow.getvalue(),
        "orc": orc.getvalue(),
    }


def load_body(*, orc_share: float = 0.0) -> Body:
    """Return a function that makes bodies. `orc_share` of loads are ORC, each of which takes a process of its
    own."""

    def body(rng: random.Random) -> tuple[list[bytes], bytes]:
        names = [name for name in _bodies() if name != "orc"]
        said = "orc" if rng.random() < orc_share else rng.choice(names)
        sent = said if rng.random() < 0.8 else rng.choice(names)
        headers = {
            "format": said,
            "column_separator": ",",
            **dict(rng.sample(_HEADERS, rng.choice((0, 1, 2, 4)))),
        }
        data = _damaged(rng, sent, _bodies()[sent])
        if headers.get("compress_type") == "gz" and rng.random() < 0.7:
            data = _damaged(rng, "gz", gzip.compress(data))
        return [f"{name}: {value}".encode() for name, value in headers.items()], data

    return body


def _damaged(rng: random.Random, kind: str, data: bytes) -> bytes:
    match rng.randrange(6):
        case 0:
            return data[: rng.randrange(len(data) + 1)]
        case 1:  # some bits
            changed = bytearray(data)
            for _ in range(rng.randint(1, 5)):
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            return bytes(changed)
        case 2:  # lengths, in binary formats: the end of a footer, or anywhere
            at = rng.choice((len(data) - 8, rng.randrange(len(data))))
            return (
                data[: max(0, at)]
                + rng.choice((b"\xff\xff\xff\x7f", bytes(4), rng.randbytes(4)))
                + data[at + 4 :]
            )
        case 3:
            return rng.choice(
                (b"", b"\0" * 100, b"[" * 5_000, b'{"id":' * 3_000, b'"' * 999, b"\xff" * 50, b"1," * 9_000)
            )
        case 4:
            return data * rng.randint(2, 20)
    return data
