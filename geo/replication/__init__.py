"""Replication of topic logs from a source cluster into a target cluster."""
