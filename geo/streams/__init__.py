"""Streaming queries: when they run, how they stop, and which of their errors may pass."""
