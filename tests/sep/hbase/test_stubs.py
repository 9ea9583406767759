"""The stubs of HBase's messages are those that their declarations generate."""

from __future__ import annotations

from pathlib import Path

import pytest
from grpc_tools import protoc
from rtolap.sep.hbase import replication_pb2, rpc_pb2

from tests.support.paths import PLUGINS, PROJECT

_DECLARATIONS = [
    *((PLUGINS, path) for path in sorted((PLUGINS / "rtolap" / "sep" / "hbase").glob("*.proto"))),
    *((PROJECT, path) for path in sorted((PROJECT / "tests" / "support" / "hbase").glob("*.proto"))),
]


@pytest.mark.parametrize(("root", "declaration"), _DECLARATIONS, ids=lambda path: path.stem)
def test_the_stubs_are_those_that_the_declaration_generates(
    root: Path, declaration: Path, tmp_path: Path
) -> None:
    relative = declaration.relative_to(root)
    folders = (f"-I{root}", f"-I{PLUGINS}")
    arguments = ["", *folders, f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", str(relative)]
    assert protoc.main(arguments) == 0
    for suffix in ("_pb2.py", "_pb2.pyi"):
        name = relative.with_name(relative.stem + suffix)
        assert (tmp_path / name).read_text() == (root / name).read_text(), f"generate {name} again"


def test_a_response_names_call_0() -> None:
    header = rpc_pb2.ResponseHeader(call_id=0).SerializeToString()
    assert header == bytes.fromhex("0800")


def test_a_key_of_a_wal_entry_has_the_numbers_of_hbase() -> None:
    key = replication_pb2.WALKey(
        encoded_region_name=b"e",
        table_name=b"t",
        log_sequence_number=7,
        write_time=9,
        cluster_ids=[replication_pb2.UUID(least_sig_bits=1, most_sig_bits=2).SerializeToString()],
    )
    assert key.SerializeToString() == bytes.fromhex("0a0165 120174 1807 2009 420408011002")
