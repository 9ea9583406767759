"""Delivery brings the events of concurrent calls to the listener in order, each once.

`delivered_edits` remembers what was delivered, with `row_ranges` which region had a row last; `edit_records`
is its form in a topic, `journal` keeps it durable. `listener` is the contract with those that take events.
`delivery` runs groups of calls, `serving` puts those together that wait, on a thread. `poison` follows events
that fail; `apart` sets rows of theirs apart, as dead letters (`letters`), which `replay` delivers after all;
`requests` are those of commands. `state` says how it all stands.

docs/decisions/0024-order-and-once.md says why it is so.
"""
