from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UUID(_message.Message):
    __slots__ = ("least_sig_bits", "most_sig_bits")
    LEAST_SIG_BITS_FIELD_NUMBER: _ClassVar[int]
    MOST_SIG_BITS_FIELD_NUMBER: _ClassVar[int]
    least_sig_bits: int
    most_sig_bits: int
    def __init__(self, least_sig_bits: _Optional[int] = ..., most_sig_bits: _Optional[int] = ...) -> None: ...

class FamilyScope(_message.Message):
    __slots__ = ("family", "scope_type")
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    SCOPE_TYPE_FIELD_NUMBER: _ClassVar[int]
    family: bytes
    scope_type: int
    def __init__(self, family: _Optional[bytes] = ..., scope_type: _Optional[int] = ...) -> None: ...

class Attribute(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class WALKey(_message.Message):
    __slots__ = ("encoded_region_name", "table_name", "log_sequence_number", "write_time", "cluster_id", "scopes", "following_kv_count", "cluster_ids", "nonce_group", "nonce", "orig_sequence_number", "extended_attributes")
    ENCODED_REGION_NAME_FIELD_NUMBER: _ClassVar[int]
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    LOG_SEQUENCE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    WRITE_TIME_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    FOLLOWING_KV_COUNT_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_IDS_FIELD_NUMBER: _ClassVar[int]
    NONCE_GROUP_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    ORIG_SEQUENCE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    EXTENDED_ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    encoded_region_name: bytes
    table_name: bytes
    log_sequence_number: int
    write_time: int
    cluster_id: UUID
    scopes: _containers.RepeatedCompositeFieldContainer[FamilyScope]
    following_kv_count: int
    cluster_ids: _containers.RepeatedScalarFieldContainer[bytes]
    nonce_group: int
    nonce: int
    orig_sequence_number: int
    extended_attributes: _containers.RepeatedCompositeFieldContainer[Attribute]
    def __init__(self, encoded_region_name: _Optional[bytes] = ..., table_name: _Optional[bytes] = ..., log_sequence_number: _Optional[int] = ..., write_time: _Optional[int] = ..., cluster_id: _Optional[_Union[UUID, _Mapping]] = ..., scopes: _Optional[_Iterable[_Union[FamilyScope, _Mapping]]] = ..., following_kv_count: _Optional[int] = ..., cluster_ids: _Optional[_Iterable[bytes]] = ..., nonce_group: _Optional[int] = ..., nonce: _Optional[int] = ..., orig_sequence_number: _Optional[int] = ..., extended_attributes: _Optional[_Iterable[_Union[Attribute, _Mapping]]] = ...) -> None: ...

class WALEntry(_message.Message):
    __slots__ = ("key", "key_value_bytes", "associated_cell_count")
    KEY_FIELD_NUMBER: _ClassVar[int]
    KEY_VALUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ASSOCIATED_CELL_COUNT_FIELD_NUMBER: _ClassVar[int]
    key: WALKey
    key_value_bytes: _containers.RepeatedScalarFieldContainer[bytes]
    associated_cell_count: int
    def __init__(self, key: _Optional[_Union[WALKey, _Mapping]] = ..., key_value_bytes: _Optional[_Iterable[bytes]] = ..., associated_cell_count: _Optional[int] = ...) -> None: ...

class ReplicateWALEntryRequest(_message.Message):
    __slots__ = ("entry", "replication_cluster_id", "source_base_namespace_dir_path", "source_h_file_archive_dir_path")
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_BASE_NAMESPACE_DIR_PATH_FIELD_NUMBER: _ClassVar[int]
    SOURCE_H_FILE_ARCHIVE_DIR_PATH_FIELD_NUMBER: _ClassVar[int]
    entry: _containers.RepeatedCompositeFieldContainer[WALEntry]
    replication_cluster_id: str
    source_base_namespace_dir_path: str
    source_h_file_archive_dir_path: str
    def __init__(self, entry: _Optional[_Iterable[_Union[WALEntry, _Mapping]]] = ..., replication_cluster_id: _Optional[str] = ..., source_base_namespace_dir_path: _Optional[str] = ..., source_h_file_archive_dir_path: _Optional[str] = ...) -> None: ...

class ReplicateWALEntryResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
