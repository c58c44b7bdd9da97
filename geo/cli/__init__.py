"""The command line `geo`."""
