"""Messages of Kafka that kafka-python does not bring: as Kafka's own schemas, in the form that it reads."""
