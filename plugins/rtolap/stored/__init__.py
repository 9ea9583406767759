"""Stored tables have typed rows, which are loaded in transactions, exactly once, over replicas on storage
nodes.

`frontend` takes loads and owns the catalogue, `node` keeps replicas, `engine` is one tablet on disk, `bodies`
turns what is sent into rows, `metastore` is the ledger in SQL, `loader` brings topics.
"""
