"""Merging of segments: intervals of the calendar, and the work of one Spark job (`merge_segments.py`).

A merge writes the rows of several READY versions a second time, merged into one set of files. It changes
nothing of what the versions hold.
"""
