from rtolap.sep.hbase import admin_pb2 as _admin_pb2
from rtolap.sep.hbase import rpc_pb2 as _rpc_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NameBytesPair(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class RegionInfo(_message.Message):
    __slots__ = ("region_id", "table_name", "start_key", "end_key", "offline", "split", "replica_id")
    REGION_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    START_KEY_FIELD_NUMBER: _ClassVar[int]
    END_KEY_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    region_id: int
    table_name: _admin_pb2.TableName
    start_key: bytes
    end_key: bytes
    offline: bool
    split: bool
    replica_id: int
    def __init__(self, region_id: _Optional[int] = ..., table_name: _Optional[_Union[_admin_pb2.TableName, _Mapping]] = ..., start_key: _Optional[bytes] = ..., end_key: _Optional[bytes] = ..., offline: _Optional[bool] = ..., split: _Optional[bool] = ..., replica_id: _Optional[int] = ...) -> None: ...

class RegionSpecifier(_message.Message):
    __slots__ = ("type", "value")
    class RegionSpecifierType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REGION_NAME: _ClassVar[RegionSpecifier.RegionSpecifierType]
        ENCODED_REGION_NAME: _ClassVar[RegionSpecifier.RegionSpecifierType]
    REGION_NAME: RegionSpecifier.RegionSpecifierType
    ENCODED_REGION_NAME: RegionSpecifier.RegionSpecifierType
    TYPE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    type: RegionSpecifier.RegionSpecifierType
    value: bytes
    def __init__(self, type: _Optional[_Union[RegionSpecifier.RegionSpecifierType, str]] = ..., value: _Optional[bytes] = ...) -> None: ...

class Cell(_message.Message):
    __slots__ = ("row", "family", "qualifier", "timestamp", "cell_type", "value", "tags")
    ROW_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    QUALIFIER_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    CELL_TYPE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    row: bytes
    family: bytes
    qualifier: bytes
    timestamp: int
    cell_type: int
    value: bytes
    tags: bytes
    def __init__(self, row: _Optional[bytes] = ..., family: _Optional[bytes] = ..., qualifier: _Optional[bytes] = ..., timestamp: _Optional[int] = ..., cell_type: _Optional[int] = ..., value: _Optional[bytes] = ..., tags: _Optional[bytes] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("cell", "partial")
    CELL_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    cell: _containers.RepeatedCompositeFieldContainer[Cell]
    partial: bool
    def __init__(self, cell: _Optional[_Iterable[_Union[Cell, _Mapping]]] = ..., partial: _Optional[bool] = ...) -> None: ...

class MutationProto(_message.Message):
    __slots__ = ("row", "mutate_type", "column_value", "timestamp", "attribute", "durability", "associated_cell_count", "nonce")
    class Durability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        USE_DEFAULT: _ClassVar[MutationProto.Durability]
        SKIP_WAL: _ClassVar[MutationProto.Durability]
        ASYNC_WAL: _ClassVar[MutationProto.Durability]
        SYNC_WAL: _ClassVar[MutationProto.Durability]
        FSYNC_WAL: _ClassVar[MutationProto.Durability]
    USE_DEFAULT: MutationProto.Durability
    SKIP_WAL: MutationProto.Durability
    ASYNC_WAL: MutationProto.Durability
    SYNC_WAL: MutationProto.Durability
    FSYNC_WAL: MutationProto.Durability
    class MutationType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        APPEND: _ClassVar[MutationProto.MutationType]
        INCREMENT: _ClassVar[MutationProto.MutationType]
        PUT: _ClassVar[MutationProto.MutationType]
        DELETE: _ClassVar[MutationProto.MutationType]
    APPEND: MutationProto.MutationType
    INCREMENT: MutationProto.MutationType
    PUT: MutationProto.MutationType
    DELETE: MutationProto.MutationType
    class DeleteType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DELETE_ONE_VERSION: _ClassVar[MutationProto.DeleteType]
        DELETE_MULTIPLE_VERSIONS: _ClassVar[MutationProto.DeleteType]
        DELETE_FAMILY: _ClassVar[MutationProto.DeleteType]
        DELETE_FAMILY_VERSION: _ClassVar[MutationProto.DeleteType]
    DELETE_ONE_VERSION: MutationProto.DeleteType
    DELETE_MULTIPLE_VERSIONS: MutationProto.DeleteType
    DELETE_FAMILY: MutationProto.DeleteType
    DELETE_FAMILY_VERSION: MutationProto.DeleteType
    class ColumnValue(_message.Message):
        __slots__ = ("family", "qualifier_value")
        class QualifierValue(_message.Message):
            __slots__ = ("qualifier", "value", "timestamp", "delete_type", "tags")
            QUALIFIER_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
            DELETE_TYPE_FIELD_NUMBER: _ClassVar[int]
            TAGS_FIELD_NUMBER: _ClassVar[int]
            qualifier: bytes
            value: bytes
            timestamp: int
            delete_type: MutationProto.DeleteType
            tags: bytes
            def __init__(self, qualifier: _Optional[bytes] = ..., value: _Optional[bytes] = ..., timestamp: _Optional[int] = ..., delete_type: _Optional[_Union[MutationProto.DeleteType, str]] = ..., tags: _Optional[bytes] = ...) -> None: ...
        FAMILY_FIELD_NUMBER: _ClassVar[int]
        QUALIFIER_VALUE_FIELD_NUMBER: _ClassVar[int]
        family: bytes
        qualifier_value: _containers.RepeatedCompositeFieldContainer[MutationProto.ColumnValue.QualifierValue]
        def __init__(self, family: _Optional[bytes] = ..., qualifier_value: _Optional[_Iterable[_Union[MutationProto.ColumnValue.QualifierValue, _Mapping]]] = ...) -> None: ...
    ROW_FIELD_NUMBER: _ClassVar[int]
    MUTATE_TYPE_FIELD_NUMBER: _ClassVar[int]
    COLUMN_VALUE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    ASSOCIATED_CELL_COUNT_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    row: bytes
    mutate_type: MutationProto.MutationType
    column_value: _containers.RepeatedCompositeFieldContainer[MutationProto.ColumnValue]
    timestamp: int
    attribute: _containers.RepeatedCompositeFieldContainer[NameBytesPair]
    durability: MutationProto.Durability
    associated_cell_count: int
    nonce: int
    def __init__(self, row: _Optional[bytes] = ..., mutate_type: _Optional[_Union[MutationProto.MutationType, str]] = ..., column_value: _Optional[_Iterable[_Union[MutationProto.ColumnValue, _Mapping]]] = ..., timestamp: _Optional[int] = ..., attribute: _Optional[_Iterable[_Union[NameBytesPair, _Mapping]]] = ..., durability: _Optional[_Union[MutationProto.Durability, str]] = ..., associated_cell_count: _Optional[int] = ..., nonce: _Optional[int] = ...) -> None: ...

class MutateRequest(_message.Message):
    __slots__ = ("region", "mutation")
    REGION_FIELD_NUMBER: _ClassVar[int]
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    region: RegionSpecifier
    mutation: MutationProto
    def __init__(self, region: _Optional[_Union[RegionSpecifier, _Mapping]] = ..., mutation: _Optional[_Union[MutationProto, _Mapping]] = ...) -> None: ...

class MutateResponse(_message.Message):
    __slots__ = ("result", "processed")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    PROCESSED_FIELD_NUMBER: _ClassVar[int]
    result: Result
    processed: bool
    def __init__(self, result: _Optional[_Union[Result, _Mapping]] = ..., processed: _Optional[bool] = ...) -> None: ...

class Action(_message.Message):
    __slots__ = ("index", "mutation")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    MUTATION_FIELD_NUMBER: _ClassVar[int]
    index: int
    mutation: MutationProto
    def __init__(self, index: _Optional[int] = ..., mutation: _Optional[_Union[MutationProto, _Mapping]] = ...) -> None: ...

class RegionAction(_message.Message):
    __slots__ = ("region", "atomic", "action")
    REGION_FIELD_NUMBER: _ClassVar[int]
    ATOMIC_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    region: RegionSpecifier
    atomic: bool
    action: _containers.RepeatedCompositeFieldContainer[Action]
    def __init__(self, region: _Optional[_Union[RegionSpecifier, _Mapping]] = ..., atomic: _Optional[bool] = ..., action: _Optional[_Iterable[_Union[Action, _Mapping]]] = ...) -> None: ...

class MultiRequest(_message.Message):
    __slots__ = ("regionAction",)
    REGIONACTION_FIELD_NUMBER: _ClassVar[int]
    regionAction: _containers.RepeatedCompositeFieldContainer[RegionAction]
    def __init__(self, regionAction: _Optional[_Iterable[_Union[RegionAction, _Mapping]]] = ...) -> None: ...

class ResultOrException(_message.Message):
    __slots__ = ("index", "result", "exception")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    EXCEPTION_FIELD_NUMBER: _ClassVar[int]
    index: int
    result: Result
    exception: NameBytesPair
    def __init__(self, index: _Optional[int] = ..., result: _Optional[_Union[Result, _Mapping]] = ..., exception: _Optional[_Union[NameBytesPair, _Mapping]] = ...) -> None: ...

class RegionActionResult(_message.Message):
    __slots__ = ("resultOrException", "exception")
    RESULTOREXCEPTION_FIELD_NUMBER: _ClassVar[int]
    EXCEPTION_FIELD_NUMBER: _ClassVar[int]
    resultOrException: _containers.RepeatedCompositeFieldContainer[ResultOrException]
    exception: NameBytesPair
    def __init__(self, resultOrException: _Optional[_Iterable[_Union[ResultOrException, _Mapping]]] = ..., exception: _Optional[_Union[NameBytesPair, _Mapping]] = ...) -> None: ...

class MultiResponse(_message.Message):
    __slots__ = ("regionActionResult",)
    REGIONACTIONRESULT_FIELD_NUMBER: _ClassVar[int]
    regionActionResult: _containers.RepeatedCompositeFieldContainer[RegionActionResult]
    def __init__(self, regionActionResult: _Optional[_Iterable[_Union[RegionActionResult, _Mapping]]] = ...) -> None: ...

class Scan(_message.Message):
    __slots__ = ("start_row", "stop_row", "max_versions", "max_result_size", "caching")
    START_ROW_FIELD_NUMBER: _ClassVar[int]
    STOP_ROW_FIELD_NUMBER: _ClassVar[int]
    MAX_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    MAX_RESULT_SIZE_FIELD_NUMBER: _ClassVar[int]
    CACHING_FIELD_NUMBER: _ClassVar[int]
    start_row: bytes
    stop_row: bytes
    max_versions: int
    max_result_size: int
    caching: int
    def __init__(self, start_row: _Optional[bytes] = ..., stop_row: _Optional[bytes] = ..., max_versions: _Optional[int] = ..., max_result_size: _Optional[int] = ..., caching: _Optional[int] = ...) -> None: ...

class ScanRequest(_message.Message):
    __slots__ = ("region", "scan", "scanner_id", "number_of_rows", "close_scanner", "next_call_seq")
    REGION_FIELD_NUMBER: _ClassVar[int]
    SCAN_FIELD_NUMBER: _ClassVar[int]
    SCANNER_ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_OF_ROWS_FIELD_NUMBER: _ClassVar[int]
    CLOSE_SCANNER_FIELD_NUMBER: _ClassVar[int]
    NEXT_CALL_SEQ_FIELD_NUMBER: _ClassVar[int]
    region: RegionSpecifier
    scan: Scan
    scanner_id: int
    number_of_rows: int
    close_scanner: bool
    next_call_seq: int
    def __init__(self, region: _Optional[_Union[RegionSpecifier, _Mapping]] = ..., scan: _Optional[_Union[Scan, _Mapping]] = ..., scanner_id: _Optional[int] = ..., number_of_rows: _Optional[int] = ..., close_scanner: _Optional[bool] = ..., next_call_seq: _Optional[int] = ...) -> None: ...

class ScanResponse(_message.Message):
    __slots__ = ("scanner_id", "more_results", "results", "more_results_in_region")
    SCANNER_ID_FIELD_NUMBER: _ClassVar[int]
    MORE_RESULTS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    MORE_RESULTS_IN_REGION_FIELD_NUMBER: _ClassVar[int]
    scanner_id: int
    more_results: bool
    results: _containers.RepeatedCompositeFieldContainer[Result]
    more_results_in_region: bool
    def __init__(self, scanner_id: _Optional[int] = ..., more_results: _Optional[bool] = ..., results: _Optional[_Iterable[_Union[Result, _Mapping]]] = ..., more_results_in_region: _Optional[bool] = ...) -> None: ...

class CreateTableRequest(_message.Message):
    __slots__ = ("table_schema", "split_keys")
    TABLE_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    SPLIT_KEYS_FIELD_NUMBER: _ClassVar[int]
    table_schema: _admin_pb2.TableSchema
    split_keys: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, table_schema: _Optional[_Union[_admin_pb2.TableSchema, _Mapping]] = ..., split_keys: _Optional[_Iterable[bytes]] = ...) -> None: ...

class TableNameRequest(_message.Message):
    __slots__ = ("table_name",)
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    table_name: _admin_pb2.TableName
    def __init__(self, table_name: _Optional[_Union[_admin_pb2.TableName, _Mapping]] = ...) -> None: ...

class TruncateTableRequest(_message.Message):
    __slots__ = ("tableName", "preserveSplits")
    TABLENAME_FIELD_NUMBER: _ClassVar[int]
    PRESERVESPLITS_FIELD_NUMBER: _ClassVar[int]
    tableName: _admin_pb2.TableName
    preserveSplits: bool
    def __init__(self, tableName: _Optional[_Union[_admin_pb2.TableName, _Mapping]] = ..., preserveSplits: _Optional[bool] = ...) -> None: ...

class ModifyTableRequest(_message.Message):
    __slots__ = ("table_name", "table_schema")
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    TABLE_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    table_name: _admin_pb2.TableName
    table_schema: _admin_pb2.TableSchema
    def __init__(self, table_name: _Optional[_Union[_admin_pb2.TableName, _Mapping]] = ..., table_schema: _Optional[_Union[_admin_pb2.TableSchema, _Mapping]] = ...) -> None: ...

class NamespaceDescriptor(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    def __init__(self, name: _Optional[bytes] = ...) -> None: ...

class CreateNamespaceRequest(_message.Message):
    __slots__ = ("namespaceDescriptor",)
    NAMESPACEDESCRIPTOR_FIELD_NUMBER: _ClassVar[int]
    namespaceDescriptor: NamespaceDescriptor
    def __init__(self, namespaceDescriptor: _Optional[_Union[NamespaceDescriptor, _Mapping]] = ...) -> None: ...

class MoveRegionRequest(_message.Message):
    __slots__ = ("region", "dest_server_name")
    REGION_FIELD_NUMBER: _ClassVar[int]
    DEST_SERVER_NAME_FIELD_NUMBER: _ClassVar[int]
    region: RegionSpecifier
    dest_server_name: _rpc_pb2.ServerName
    def __init__(self, region: _Optional[_Union[RegionSpecifier, _Mapping]] = ..., dest_server_name: _Optional[_Union[_rpc_pb2.ServerName, _Mapping]] = ...) -> None: ...

class MoveRegionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SplitTableRegionRequest(_message.Message):
    __slots__ = ("region_info", "split_row")
    REGION_INFO_FIELD_NUMBER: _ClassVar[int]
    SPLIT_ROW_FIELD_NUMBER: _ClassVar[int]
    region_info: RegionInfo
    split_row: bytes
    def __init__(self, region_info: _Optional[_Union[RegionInfo, _Mapping]] = ..., split_row: _Optional[bytes] = ...) -> None: ...

class RollWALWriterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RollWALWriterResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StopServerRequest(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class StopServerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ShutdownRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ShutdownResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FlushRegionRequest(_message.Message):
    __slots__ = ("region",)
    REGION_FIELD_NUMBER: _ClassVar[int]
    region: RegionSpecifier
    def __init__(self, region: _Optional[_Union[RegionSpecifier, _Mapping]] = ...) -> None: ...

class FlushRegionResponse(_message.Message):
    __slots__ = ("last_flush_time",)
    LAST_FLUSH_TIME_FIELD_NUMBER: _ClassVar[int]
    last_flush_time: int
    def __init__(self, last_flush_time: _Optional[int] = ...) -> None: ...
