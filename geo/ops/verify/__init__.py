"""Verify: whether all clusters hold what they must hold."""
