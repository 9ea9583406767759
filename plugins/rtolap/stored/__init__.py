"""Stored tables have typed rows, which are loaded in transactions, exactly once, over replicas on storage
nodes.

`frontend` decides transactions and owns the catalogue, `node` keeps replicas, both take loads by
`stream_load`; `engine` is one tablet on disk, `bodies` turns what is sent into rows, `metastore` is the
ledger in SQL, `loader` brings topics.
"""
