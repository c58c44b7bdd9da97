"""Placement of bundles of topics on brokers, decided as Pulsar's ModularLoadManagerImpl decides it. Nothing here runs a broker or reads a table:
reports, policies and the time come in, decisions go out as values.
"""
