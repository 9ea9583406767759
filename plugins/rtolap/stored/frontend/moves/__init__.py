"""Moves of replicas between storage nodes: nodes that are lost, new, drained, or fuller than others."""
