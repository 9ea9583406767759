"""Administration of a whole Kafka cluster: what is where, and moving it.

`values` are what is said and answered; `interface` says what can be asked. `client` asks brokers through
kafka-python, which nothing else imports; `schemas` are Kafka's messages that this library lacks. A contract
suite holds it, and the twin of tests, which moves data step by step. Nothing here decides anything or waits
for a move to end.
"""
