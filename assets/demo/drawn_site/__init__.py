"""Drawn scenes of a work site, with their truth."""
