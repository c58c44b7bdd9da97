"""Numbers the rows of a batch. It finds which of them are new, how many there are of each ledger, and the entries they get in offset order.

There are two ways, which tests hold equal. `HeldRows` is for a few rows anywhere, and for any number where the log is on a local disk or on S3.
`OnSpark` for any number anywhere.
"""
