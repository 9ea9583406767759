"""The first definitions of a topic that nobody has described yet: guessed from its records, with reasons.

    records     the first records of a topic
    sample      what the records hold: JSON, `csv_sample`, or by schemas `registered_sample`
    values      what stands at each path of the records: types, how many values, how often none
    times       which path is the event time, and how it is written
    names       of tables and columns
    guess       the table and the cube, and proof that the table refuses none of the records
    files       their YAML, with comments that say why; nothing is overwritten

A guess is a start for somebody who knows the events. What cannot be declared without refusing a record is
left out, and a comment says so.
"""
