"""The storage engine of one tablet: one hash bucket of one partition of a stored table, on one node.

Nouns: a **rowset** is what one transaction, or one compaction, put into a tablet: sorted **files**
(FORMAT.md). A **version** is what a published transaction makes, one more each. A **snapshot** is a version
that is pinned: while it is, nothing that it reads is deleted. **Deletes** are the rows of a unique table that
later ones have overwritten, by file and version.

`tablet` is the whole, `core` its parts. `state` is what it remembers, `log` and `deletes` where. `loading`
(on `reduce`, `keys`, `files.writer`) makes files out of Arrow batches, `sorted_file` opens them; `publishing`
makes a version of them and finds what it deletes; `scan` (on `zones`, `key_ranges`) answers; `compaction`
makes few files of many. `steps` numbers what is made durable in which order, and what a crash after each step
leaves.

Invariants: nothing unpublished is ever read; versions become visible one after another; a file is never
changed; every byte is under a checksum; merging rows in any grouping gives the same rows, so compaction
changes no answer.
"""
