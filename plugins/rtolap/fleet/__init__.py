"""Care of the Kafka fleet: what it is like, what to change, and changing it without losing a message.

`snapshot/` holds a fleet at one moment, in columns; whatever is decided is a function of one. `tiers/` does
so for what of tiered topics lies where. `operations/` has the use cases that commands, DAGs and policies
call.
"""
