"""Watermarks of an application: from the hosts' progress to the instant before which windows may close.

Nouns: a host's **progress** is the latest event time of it that has been read; a **snapshot** is the
progress and the event rates of all hosts at one moment; a **rule** makes a **decision** of it: a watermark,
who holds it, and which share of events may be missing. Levels of a topology combine by minimum.

Invariants: nothing in here does I/O, reads a clock or draws random numbers; instants are int64 ms since the
epoch, NEVER for unknown. A window [s, e) closes when the watermark is at or beyond e. What is not known
counts as late. What is published never falls: raw values may (a host joins), so who publishes keeps the
largest.

`records` has the other way to tell progress: statements inside the records of a topic.

Never: a Python loop per host in a path that runs with every report.
"""
