from rtolap.sep.hbase import rpc_pb2 as _rpc_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Option(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HBASE_VERSION: _ClassVar[Option]
    CLUSTER_ID: _ClassVar[Option]
    LIVE_SERVERS: _ClassVar[Option]
    DEAD_SERVERS: _ClassVar[Option]
    MASTER: _ClassVar[Option]
    BACKUP_MASTERS: _ClassVar[Option]
    MASTER_COPROCESSORS: _ClassVar[Option]
    REGIONS_IN_TRANSITION: _ClassVar[Option]
    BALANCER_ON: _ClassVar[Option]
    MASTER_INFO_PORT: _ClassVar[Option]
    SERVERS_NAME: _ClassVar[Option]
    TABLE_TO_REGIONS_COUNT: _ClassVar[Option]
    TASKS: _ClassVar[Option]
    UNKNOWN_SERVERS: _ClassVar[Option]
HBASE_VERSION: Option
CLUSTER_ID: Option
LIVE_SERVERS: Option
DEAD_SERVERS: Option
MASTER: Option
BACKUP_MASTERS: Option
MASTER_COPROCESSORS: Option
REGIONS_IN_TRANSITION: Option
BALANCER_ON: Option
MASTER_INFO_PORT: Option
SERVERS_NAME: Option
TABLE_TO_REGIONS_COUNT: Option
TASKS: Option
UNKNOWN_SERVERS: Option

class TableName(_message.Message):
    __slots__ = ("namespace", "qualifier")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    QUALIFIER_FIELD_NUMBER: _ClassVar[int]
    namespace: bytes
    qualifier: bytes
    def __init__(self, namespace: _Optional[bytes] = ..., qualifier: _Optional[bytes] = ...) -> None: ...

class BytesBytesPair(_message.Message):
    __slots__ = ("first", "second")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SECOND_FIELD_NUMBER: _ClassVar[int]
    first: bytes
    second: bytes
    def __init__(self, first: _Optional[bytes] = ..., second: _Optional[bytes] = ...) -> None: ...

class NameStringPair(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class ColumnFamilySchema(_message.Message):
    __slots__ = ("name", "attributes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    attributes: _containers.RepeatedCompositeFieldContainer[BytesBytesPair]
    def __init__(self, name: _Optional[bytes] = ..., attributes: _Optional[_Iterable[_Union[BytesBytesPair, _Mapping]]] = ...) -> None: ...

class TableSchema(_message.Message):
    __slots__ = ("table_name", "column_families")
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FAMILIES_FIELD_NUMBER: _ClassVar[int]
    table_name: TableName
    column_families: _containers.RepeatedCompositeFieldContainer[ColumnFamilySchema]
    def __init__(self, table_name: _Optional[_Union[TableName, _Mapping]] = ..., column_families: _Optional[_Iterable[_Union[ColumnFamilySchema, _Mapping]]] = ...) -> None: ...

class GetTableDescriptorsRequest(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class GetTableDescriptorsResponse(_message.Message):
    __slots__ = ("table_schema",)
    TABLE_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    table_schema: _containers.RepeatedCompositeFieldContainer[TableSchema]
    def __init__(self, table_schema: _Optional[_Iterable[_Union[TableSchema, _Mapping]]] = ...) -> None: ...

class TableCF(_message.Message):
    __slots__ = ("table_name", "families")
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    FAMILIES_FIELD_NUMBER: _ClassVar[int]
    table_name: TableName
    families: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, table_name: _Optional[_Union[TableName, _Mapping]] = ..., families: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ReplicationPeer(_message.Message):
    __slots__ = ("clusterkey", "configuration", "table_cfs", "namespaces", "bandwidth", "replicate_all", "exclude_table_cfs", "exclude_namespaces", "serial")
    CLUSTERKEY_FIELD_NUMBER: _ClassVar[int]
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    TABLE_CFS_FIELD_NUMBER: _ClassVar[int]
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    BANDWIDTH_FIELD_NUMBER: _ClassVar[int]
    REPLICATE_ALL_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_TABLE_CFS_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    clusterkey: str
    configuration: _containers.RepeatedCompositeFieldContainer[NameStringPair]
    table_cfs: _containers.RepeatedCompositeFieldContainer[TableCF]
    namespaces: _containers.RepeatedScalarFieldContainer[bytes]
    bandwidth: int
    replicate_all: bool
    exclude_table_cfs: _containers.RepeatedCompositeFieldContainer[TableCF]
    exclude_namespaces: _containers.RepeatedScalarFieldContainer[bytes]
    serial: bool
    def __init__(self, clusterkey: _Optional[str] = ..., configuration: _Optional[_Iterable[_Union[NameStringPair, _Mapping]]] = ..., table_cfs: _Optional[_Iterable[_Union[TableCF, _Mapping]]] = ..., namespaces: _Optional[_Iterable[bytes]] = ..., bandwidth: _Optional[int] = ..., replicate_all: _Optional[bool] = ..., exclude_table_cfs: _Optional[_Iterable[_Union[TableCF, _Mapping]]] = ..., exclude_namespaces: _Optional[_Iterable[bytes]] = ..., serial: _Optional[bool] = ...) -> None: ...

class ReplicationState(_message.Message):
    __slots__ = ("state",)
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ENABLED: _ClassVar[ReplicationState.State]
        DISABLED: _ClassVar[ReplicationState.State]
    ENABLED: ReplicationState.State
    DISABLED: ReplicationState.State
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: ReplicationState.State
    def __init__(self, state: _Optional[_Union[ReplicationState.State, str]] = ...) -> None: ...

class ReplicationPeerDescription(_message.Message):
    __slots__ = ("id", "state", "config")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: ReplicationState
    config: ReplicationPeer
    def __init__(self, id: _Optional[str] = ..., state: _Optional[_Union[ReplicationState, _Mapping]] = ..., config: _Optional[_Union[ReplicationPeer, _Mapping]] = ...) -> None: ...

class PeerRequest(_message.Message):
    __slots__ = ("peer_id", "peer_config", "peer_state")
    PEER_ID_FIELD_NUMBER: _ClassVar[int]
    PEER_CONFIG_FIELD_NUMBER: _ClassVar[int]
    PEER_STATE_FIELD_NUMBER: _ClassVar[int]
    peer_id: str
    peer_config: ReplicationPeer
    peer_state: ReplicationState
    def __init__(self, peer_id: _Optional[str] = ..., peer_config: _Optional[_Union[ReplicationPeer, _Mapping]] = ..., peer_state: _Optional[_Union[ReplicationState, _Mapping]] = ...) -> None: ...

class ListReplicationPeersResponse(_message.Message):
    __slots__ = ("peer_desc",)
    PEER_DESC_FIELD_NUMBER: _ClassVar[int]
    peer_desc: _containers.RepeatedCompositeFieldContainer[ReplicationPeerDescription]
    def __init__(self, peer_desc: _Optional[_Iterable[_Union[ReplicationPeerDescription, _Mapping]]] = ...) -> None: ...

class ProcedureResponse(_message.Message):
    __slots__ = ("proc_id",)
    PROC_ID_FIELD_NUMBER: _ClassVar[int]
    proc_id: int
    def __init__(self, proc_id: _Optional[int] = ...) -> None: ...

class GenericExceptionMessage(_message.Message):
    __slots__ = ("class_name", "message")
    CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    class_name: str
    message: str
    def __init__(self, class_name: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class ForeignExceptionMessage(_message.Message):
    __slots__ = ("generic_exception",)
    GENERIC_EXCEPTION_FIELD_NUMBER: _ClassVar[int]
    generic_exception: GenericExceptionMessage
    def __init__(self, generic_exception: _Optional[_Union[GenericExceptionMessage, _Mapping]] = ...) -> None: ...

class GetProcedureResultRequest(_message.Message):
    __slots__ = ("proc_id",)
    PROC_ID_FIELD_NUMBER: _ClassVar[int]
    proc_id: int
    def __init__(self, proc_id: _Optional[int] = ...) -> None: ...

class GetProcedureResultResponse(_message.Message):
    __slots__ = ("state", "exception")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NOT_FOUND: _ClassVar[GetProcedureResultResponse.State]
        RUNNING: _ClassVar[GetProcedureResultResponse.State]
        FINISHED: _ClassVar[GetProcedureResultResponse.State]
    NOT_FOUND: GetProcedureResultResponse.State
    RUNNING: GetProcedureResultResponse.State
    FINISHED: GetProcedureResultResponse.State
    STATE_FIELD_NUMBER: _ClassVar[int]
    EXCEPTION_FIELD_NUMBER: _ClassVar[int]
    state: GetProcedureResultResponse.State
    exception: ForeignExceptionMessage
    def __init__(self, state: _Optional[_Union[GetProcedureResultResponse.State, str]] = ..., exception: _Optional[_Union[ForeignExceptionMessage, _Mapping]] = ...) -> None: ...

class ReplicationLoadSource(_message.Message):
    __slots__ = ("peerID", "ageOfLastShippedOp", "sizeOfLogQueue", "timeStampOfLastShippedOp", "replicationLag", "timeStampOfNextToReplicate", "queueId", "recovered", "running", "oPsShipped")
    PEERID_FIELD_NUMBER: _ClassVar[int]
    AGEOFLASTSHIPPEDOP_FIELD_NUMBER: _ClassVar[int]
    SIZEOFLOGQUEUE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPOFLASTSHIPPEDOP_FIELD_NUMBER: _ClassVar[int]
    REPLICATIONLAG_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMPOFNEXTTOREPLICATE_FIELD_NUMBER: _ClassVar[int]
    QUEUEID_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    OPSSHIPPED_FIELD_NUMBER: _ClassVar[int]
    peerID: str
    ageOfLastShippedOp: int
    sizeOfLogQueue: int
    timeStampOfLastShippedOp: int
    replicationLag: int
    timeStampOfNextToReplicate: int
    queueId: str
    recovered: bool
    running: bool
    oPsShipped: int
    def __init__(self, peerID: _Optional[str] = ..., ageOfLastShippedOp: _Optional[int] = ..., sizeOfLogQueue: _Optional[int] = ..., timeStampOfLastShippedOp: _Optional[int] = ..., replicationLag: _Optional[int] = ..., timeStampOfNextToReplicate: _Optional[int] = ..., queueId: _Optional[str] = ..., recovered: _Optional[bool] = ..., running: _Optional[bool] = ..., oPsShipped: _Optional[int] = ...) -> None: ...

class ServerLoad(_message.Message):
    __slots__ = ("report_end_time", "info_server_port", "replLoadSource")
    REPORT_END_TIME_FIELD_NUMBER: _ClassVar[int]
    INFO_SERVER_PORT_FIELD_NUMBER: _ClassVar[int]
    REPLLOADSOURCE_FIELD_NUMBER: _ClassVar[int]
    report_end_time: int
    info_server_port: int
    replLoadSource: _containers.RepeatedCompositeFieldContainer[ReplicationLoadSource]
    def __init__(self, report_end_time: _Optional[int] = ..., info_server_port: _Optional[int] = ..., replLoadSource: _Optional[_Iterable[_Union[ReplicationLoadSource, _Mapping]]] = ...) -> None: ...

class LiveServerInfo(_message.Message):
    __slots__ = ("server", "server_load")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    SERVER_LOAD_FIELD_NUMBER: _ClassVar[int]
    server: _rpc_pb2.ServerName
    server_load: ServerLoad
    def __init__(self, server: _Optional[_Union[_rpc_pb2.ServerName, _Mapping]] = ..., server_load: _Optional[_Union[ServerLoad, _Mapping]] = ...) -> None: ...

class ClusterId(_message.Message):
    __slots__ = ("cluster_id",)
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    def __init__(self, cluster_id: _Optional[str] = ...) -> None: ...

class ClusterStatus(_message.Message):
    __slots__ = ("live_servers", "cluster_id", "master", "servers_name")
    LIVE_SERVERS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_FIELD_NUMBER: _ClassVar[int]
    SERVERS_NAME_FIELD_NUMBER: _ClassVar[int]
    live_servers: _containers.RepeatedCompositeFieldContainer[LiveServerInfo]
    cluster_id: ClusterId
    master: _rpc_pb2.ServerName
    servers_name: _containers.RepeatedCompositeFieldContainer[_rpc_pb2.ServerName]
    def __init__(self, live_servers: _Optional[_Iterable[_Union[LiveServerInfo, _Mapping]]] = ..., cluster_id: _Optional[_Union[ClusterId, _Mapping]] = ..., master: _Optional[_Union[_rpc_pb2.ServerName, _Mapping]] = ..., servers_name: _Optional[_Iterable[_Union[_rpc_pb2.ServerName, _Mapping]]] = ...) -> None: ...

class GetClusterStatusRequest(_message.Message):
    __slots__ = ("options",)
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    options: _containers.RepeatedScalarFieldContainer[Option]
    def __init__(self, options: _Optional[_Iterable[_Union[Option, str]]] = ...) -> None: ...

class GetClusterStatusResponse(_message.Message):
    __slots__ = ("cluster_status",)
    CLUSTER_STATUS_FIELD_NUMBER: _ClassVar[int]
    cluster_status: ClusterStatus
    def __init__(self, cluster_status: _Optional[_Union[ClusterStatus, _Mapping]] = ...) -> None: ...

class ListDecommissionedRegionServersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListDecommissionedRegionServersResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Master(_message.Message):
    __slots__ = ("master", "rpc_version", "info_port")
    MASTER_FIELD_NUMBER: _ClassVar[int]
    RPC_VERSION_FIELD_NUMBER: _ClassVar[int]
    INFO_PORT_FIELD_NUMBER: _ClassVar[int]
    master: _rpc_pb2.ServerName
    rpc_version: int
    info_port: int
    def __init__(self, master: _Optional[_Union[_rpc_pb2.ServerName, _Mapping]] = ..., rpc_version: _Optional[int] = ..., info_port: _Optional[int] = ...) -> None: ...

class MetaRegionServer(_message.Message):
    __slots__ = ("server", "rpc_version")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    RPC_VERSION_FIELD_NUMBER: _ClassVar[int]
    server: _rpc_pb2.ServerName
    rpc_version: int
    def __init__(self, server: _Optional[_Union[_rpc_pb2.ServerName, _Mapping]] = ..., rpc_version: _Optional[int] = ...) -> None: ...

class ReplicationHLogPosition(_message.Message):
    __slots__ = ("position",)
    POSITION_FIELD_NUMBER: _ClassVar[int]
    position: int
    def __init__(self, position: _Optional[int] = ...) -> None: ...
