"""Stream Load, as clients of Doris know it: messages and client."""
