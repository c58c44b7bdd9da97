"""Numbers the rows of a batch: which of them are new, how many there are of each ledger, and the entries they get in offset order.

Two ways, which tests hold equal: `HeldRows` for a few rows anywhere, and for any number where the log is on a local disk or on S3. `OnSpark` for any
number anywhere.
"""
