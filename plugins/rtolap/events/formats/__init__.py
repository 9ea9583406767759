"""The formats of records: bytes of many records → rows of a plan's columns, and a reason for each refusal.

`readers.record_reader` gives the reader of a format; all of them keep one contract (`reader.RecordReader`).
Text formats are parsed by columnar libraries, a batch as one text. Binary ones are read in lockstep: all
records of a batch advance through the schema together, and each step is arithmetic over whole columns
(`lockstep`). A record that ends too early, or too late, or holds what a column cannot take is refused alone.
"""
