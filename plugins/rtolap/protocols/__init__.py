"""Each protocol has a module with its messages and its client. Services meet only through these.

agent, coordinator, loader, query, receiver, storage, watermark   between services and those who ask them
stored_tables     definitions and reads of stored tables; stream_load loads them, ours or a Doris
capture           consumers of one capture subscription hand edits to each other
definitions       who takes which kind of definition, and in which order
rest, flight      what clients and servers of each kind have in common
"""
