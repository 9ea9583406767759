"""Answers out of one local state.

`query_service` says whether the state may answer and puts the answer together, `selection` reads the rows of
one table, `result_cache` remembers for statements that come again.
"""
