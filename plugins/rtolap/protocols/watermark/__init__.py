"""Watermarks of applications over REST: messages, requests, history."""
