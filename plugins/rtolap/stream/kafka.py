"""confluent-kafka behind the seam."""
from __future__ import annotations
# KafkaConsumer(bootstrap: str, topic: str, *, client_id: str, with_create_ms: bool = False)
# KafkaProducer(bootstrap: str, *, client_id: str);  KafkaAdmin(bootstrap: str)
