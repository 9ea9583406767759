"""Protocols of HBase: its RPC, its master, and its nodes in ZooKeeper.

`connection` is the client's side of the RPC; `master` asks the active master, for `peers` among other things;
`znodes` reads HBase's nodes, `queues` those of logs yet to be shipped.

`regions` reads rows of regions. `rpc.proto`, `replication.proto`, `admin.proto` and `rows.proto` are our own
declarations of HBase's messages, with the same numbers; the modules `…_pb2` are generated from them:

    python -m grpc_tools.protoc -I plugins --python_out=plugins --pyi_out=plugins rtolap/sep/hbase/NAME.proto
"""
