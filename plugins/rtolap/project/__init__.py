"""The first definitions of a topic that nobody has described yet: guessed from its records, with reasons.

    records     the first records of a topic
    values      what stands at each path of the records: types, how many values, how often none
    times       which path is the event time, and how it is written
    guess       the table and the cube, and proof that the table refuses none of the records
    files       their YAML, with comments that say why; nothing is overwritten

A guess is a start for somebody who knows the events. What cannot be declared without refusing a record is
left out, and a comment says so.
"""
