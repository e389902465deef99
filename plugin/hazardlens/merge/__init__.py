"""Merging detections with answers: when to ask, the join of answers to frames, and the rules."""
