"""Administration of a whole Kafka cluster: what is where, and moving it.

`values` are what is said and answered; `interface` says what can be asked. `client` asks brokers through
kafka-python, which nothing else imports; `memory` is the deterministic twin, which moves data step by step.
`schemas` are Kafka's messages that the
client library lacks. One contract suite holds both. Nothing here decides anything or waits for a move to end.
"""
