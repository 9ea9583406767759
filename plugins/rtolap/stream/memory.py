"""Deterministic twin of Kafka."""
from __future__ import annotations
# MemoryBroker(); MemoryConsumer(broker, topic); MemoryProducer(broker); MemoryAdmin(broker)
