"""The topic log: names, message ids, ledgers, and what writes and reads a log."""
