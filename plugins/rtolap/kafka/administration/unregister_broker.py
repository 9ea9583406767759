"""UnregisterBroker (API key 64): kafka-python knows the key and has no message for it.

Its message classes are made of Kafka's own schemas, which stand in `schemas`; an answer is read by the
class that was registered under the request's key.
"""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage

_SCHEMAS = f"{__package__}.schemas"


class UnregisterBrokerRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[misc, call-arg]
    pass


class UnregisterBrokerResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[misc, call-arg]
    pass
