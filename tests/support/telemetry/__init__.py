"""Receivers of OpenTelemetry's spans: the collector itself, and one of the messages that it is made of."""
