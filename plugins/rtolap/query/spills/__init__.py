"""The disk takes what statements hold beyond their memory.

Workers spill by their engine, each into a folder of its own. The service itself spills partial rows of
history, into files without a name.

Invariants: nothing outlives the process that spilled it, however that ends. A declared share of the disk
stays free. A full disk is an error of the tree, which names the setting.

Never: keep a file for a later statement.
"""
