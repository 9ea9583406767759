"""The Kafka seam: what the product needs of consumers, producers and administration.

`interfaces` says it; `consumer`, `producer` and `topic_lookup` do it through librdkafka, `memory` is their
deterministic twin, and one contract suite holds both.
"""
