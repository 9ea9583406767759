"""Answers out of one local state.

`query_service` says whether the state may answer and puts the answer together, `result_cache` reads the rows
of each table, and remembers for statements that come again.
"""
