"""Which rows of a batch are new, how many there are of each ledger, and the entries they get in offset order: in ways that tests
hold equal."""
