"""The columnar way in: Kafka records → Arrow tables with derived time columns.

`consumer` is the seam to Kafka (`kafka` the real one, `memory` its deterministic twin, one contract suite
for both); `decode` turns a batch of JSON values into typed columns and names each record it refuses;
`derive` computes segments and time dimensions. An offset always means next-to-read.

Whether a record is accepted depends on that record and the clock alone, never on its neighbours in a
batch: replicas batch differently and must agree.
"""
