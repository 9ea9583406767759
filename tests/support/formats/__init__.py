"""Writers of record formats, apart from the readers that they test."""
