"""Alerts: rules watched over the records of a source, what is kept of them, and who is told."""
