"""Events: what each WAL edit of a call did to each row, as columns.

`edit_batch` holds all events of one call.
"""
