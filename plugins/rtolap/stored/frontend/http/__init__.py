"""The HTTP routes of a front end."""
