"""Protocols of HBase: its RPC, its master, and its nodes in ZooKeeper.

`connection` is the client's side of the RPC; `master` asks the active master, for `peers` among other things;
`znodes` reads HBase's nodes, `queues` those of logs yet to be shipped.

`rpc.proto`, `replication.proto` and `admin.proto` are our own declarations of HBase's messages, of the same
numbers; `rpc_pb2`, `replication_pb2` and `admin_pb2` are generated from them:

    python -m grpc_tools.protoc -I plugins --python_out=plugins --pyi_out=plugins rtolap/sep/hbase/NAME.proto
"""
