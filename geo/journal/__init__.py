"""The system tables of a cluster as journals, and the tables and folders that a cluster has."""
