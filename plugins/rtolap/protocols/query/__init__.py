"""The query service over HTTP: client, warnings, refused records in words."""
