"""Connections, transactions, roles and what database errors mean."""
