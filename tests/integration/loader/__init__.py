"""Tests of loaders as processes, between Kafka, endpoints and storage nodes."""
