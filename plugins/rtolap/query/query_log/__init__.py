"""The query log: each finished statement, as a table that SQL reads (information_schema.query_log).

    entries    what is kept of a statement, and its columns
    texts      texts without their values
    folder     files of entries on the disk, bounded in bytes and age
    log        the log of one query service: notes, writes beside the statements, and answers

A statement makes a row of itself. A thread writes what has come, every few seconds, as a batch of an Arrow
stream; a service that is killed loses what came after the last batch, and nothing else.
"""
