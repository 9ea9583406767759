"""Watermarks in Kafka records: headers and control records that producers write and readers understand."""
