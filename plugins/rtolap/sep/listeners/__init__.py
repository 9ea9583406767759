"""Listeners take the events. Each keeps the promise of docs/decisions/0024-order-and-once.md in its own way.

`delivery.listener` is their contract. `kafka_topic` writes records, out of what `event_columns` makes;
`callable` calls Python, on lanes; `stored_table` loads what `table_rows` makes. `assembly` opens the one that
a subscription declares.
"""
