"""Set-ups that are broken in one way each, on real tables without Spark: what those who look are told, and whether what they are told to do
ends it. `python -m tests.broken --help`.
"""
