"""Listeners: where events go to. Each keeps the promise of docs/decisions/0024-order-and-once.md its own way.

`listener` says what one is; `kafka_topic` writes records, which `event_columns` and `json_events` make;
`callable` calls Python; `stored_table` loads what `table_rows` makes. `assembly` opens the one that
a subscription declares.
"""
