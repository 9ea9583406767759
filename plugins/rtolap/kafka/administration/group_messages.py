"""Messages about groups of Kafka 4's newer protocols, which kafka-python does not bring.

ConsumerGroupDescribe (API key 69), ShareGroupDescribe (77), DescribeShareGroupOffsets (90). As in
`unregister_broker`, the classes are made of Kafka's schemas, which stand in `schemas`.
"""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage

_SCHEMAS = f"{__package__}.schemas"


class ConsumerGroupDescribeRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[misc, call-arg]
    pass


class ConsumerGroupDescribeResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[misc, call-arg]
    pass


class ShareGroupDescribeRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[misc, call-arg]
    pass


class ShareGroupDescribeResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[misc, call-arg]
    pass


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[misc, call-arg]
    pass


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[misc, call-arg]
    pass
