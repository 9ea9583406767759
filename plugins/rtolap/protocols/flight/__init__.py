"""Common parts of the clients of Flight: channels, sessions, named errors."""
