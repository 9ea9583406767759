"""Our declarations of HBase's messages against its own, which one of its jars holds."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import grpc_tools
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FileDescriptor
from grpc_tools import protoc
from rtolap.sep.hbase import admin_pb2, replication_pb2, rows_pb2, rpc_pb2
from rtolap.stack.artifacts import hbase_jars

from tests.support.hbase import client_pb2

pytestmark = pytest.mark.integration

# Ours alone: one shape that stands for many of HBase's.
_OWN = {"PeerRequest", "ProcedureResponse", "TableNameRequest"}
_FILES = ("Master.proto", "Admin.proto", "Client.proto", "RPC.proto", "ZooKeeper.proto")
_KINDS = descriptor_pb2.FieldDescriptorProto
_Number = int
_FieldKind = tuple[str, int, bool]  # name without "_", type, repeated


@pytest.fixture(scope="module")
def official(owned: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[_Number, _FieldKind]]:
    folder = tmp_path_factory.mktemp("protos")
    (jar,) = (path for path in hbase_jars() if path.name.startswith("hbase-protocol-shaded-"))
    with zipfile.ZipFile(jar) as archive:
        names = [name for name in archive.namelist() if name.endswith(".proto")]
        archive.extractall(folder, names)
    any_proto = folder / "org/apache/hbase/thirdparty/google/protobuf/any.proto"  # in another jar
    any_proto.parent.mkdir(parents=True)
    shutil.copy(Path(grpc_tools.__file__).parent / "_proto" / "google" / "protobuf" / "any.proto", any_proto)
    out = folder / "all.bin"
    arguments = ["", f"-I{folder}", "--include_imports", f"--descriptor_set_out={out}", *_FILES]
    assert protoc.main(arguments) == 0
    files = descriptor_pb2.FileDescriptorSet.FromString(Path(out).read_bytes()).file
    return {
        message.name: {
            field.number: _kind(field.name, field.type, field.label == _KINDS.LABEL_REPEATED)
            for field in message.field
        }
        for file in files
        for message in _nested(file.message_type)
    }


@pytest.mark.parametrize(
    "module", [rpc_pb2, replication_pb2, admin_pb2, rows_pb2, client_pb2], ids=lambda m: m.__name__
)
def test_every_field_has_the_number_and_the_type_of_hbases_own(
    official: dict[str, dict[_Number, _FieldKind]], module: object
) -> None:
    file: FileDescriptor = module.DESCRIPTOR  # type: ignore[attr-defined]
    checked = 0
    for message in _all(file.message_types_by_name.values()):
        if message.name in _OWN:
            continue
        own = {field.number: _kind(field.name, field.type, field.is_repeated) for field in message.fields}
        theirs = official[message.name]
        assert own == {number: theirs.get(number) for number in own}, message.name
        checked += len(own)
    assert checked > 10


def _kind(name: str, kind: int, repeated: bool) -> _FieldKind:
    # an enum is an int32 on the wire; texts and messages are bytes
    wire = {
        _KINDS.TYPE_ENUM: _KINDS.TYPE_INT32,
        _KINDS.TYPE_STRING: _KINDS.TYPE_BYTES,
        _KINDS.TYPE_MESSAGE: _KINDS.TYPE_BYTES,
    }
    return name.replace("_", "").lower(), wire.get(kind, kind), repeated


def _nested(messages: Iterable[descriptor_pb2.DescriptorProto]) -> Iterator[descriptor_pb2.DescriptorProto]:
    for message in messages:
        yield message
        yield from _nested(message.nested_type)


def _all(messages: Iterable[Descriptor]) -> Iterator[Descriptor]:
    for message in messages:
        yield message
        yield from _all(message.nested_types)
