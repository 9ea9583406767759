"""Tests on several real brokers."""
