"""Delivery: events of concurrent calls reach the listener in order, each once.

`delivered_edits` remembers what was delivered; `edit_records` is its form in the journal; `journal` keeps it
durable; `group` puts waiting calls together; `poison` follows events that fail; `delivery` runs it all.
docs/decisions/0024-order-and-once.md says why it is so.
"""
