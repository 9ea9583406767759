"""Rows of a source's tables as they are now, beside the edits that tell that they have changed.

`reader` reads rows again, no older than the edits that ask for it.
"""
