"""The Kafka seam: what the product needs of consumers, producers and administration.

`interfaces` says it; `consumer`, `producer` and `topic_lookup` do it through librdkafka. A contract suite
holds them, and the deterministic twins of tests. `administration` asks and changes whole clusters.
`transactions` writes to several topics at once, under an id that one process has at a time. `topic_identity`
and `truncation` tell whether stored offsets still count the records that they did.
"""
