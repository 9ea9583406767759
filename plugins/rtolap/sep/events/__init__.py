"""Events say, in columns, what each WAL edit of a call did to each row.

`decode` turns a call into an `edit_batch.EditBatch`: it reads the keys of its WAL entries, has `cells` read
its cell block, and makes an event of each row of each entry. `filters` keep what a subscription wants.

For listeners: `columns` finds the cell that stands for a declared column, `values` reads HBase's encodings,
`tags` the time to live, and `entry_points` loads filters and payload extractors of users.

A call that cannot be read is Corrupted as a whole, so HBase sends it again; a value that cannot be read is
refused alone, by the type that was declared for it.
"""
