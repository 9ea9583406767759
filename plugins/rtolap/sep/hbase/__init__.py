"""Protocols of HBase: the messages that go over its RPC.

`rpc.proto` and `replication.proto` are our own declarations of HBase's messages, of the same numbers;
`rpc_pb2` and `replication_pb2` are generated from them:

    python -m grpc_tools.protoc -I plugins --python_out=plugins --pyi_out=plugins rtolap/sep/hbase/NAME.proto
"""
