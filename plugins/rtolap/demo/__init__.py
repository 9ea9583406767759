"""The demonstration replays a year of real flights, asks queries all the time, and has DuckDB count again.

`flights` lays out the replay (deterministic: same seed, same bytes, same partitions and offsets); `produce`
sends it; `recount` holds the queries, and answers the same out of the source rows, for exactly the prefix of
every partition that an answer states; `journal` keeps both; `run` drives it all through the stack and
Airflow.

The recount never touches rtolap's data path: it reads the CSV, not the topic.
"""
