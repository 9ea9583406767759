"""The columnar way in: Kafka records → typed Arrow tables, with a named reason for every refused record.

`decode` turns a batch of values into columns: `plan` says what is read from where, `formats` has the readers
of all formats but JSON. Of that `json_reader` parses and keeps rows aligned, `lossy` finds numbers that would
lose digits. `event_time` reads times, `classify` names faults, `rejects` holds them. An offset always means
next-to-read.

Whether a record is accepted depends on that record and its own timestamp alone, never on its neighbours in
a batch or on when it is read (the clock stands in only where Kafka gives no timestamp): replicas batch
differently, replays come later, and all must agree. An offset outside the log is an error, never a silent
skip.
"""
