"""The demo: a drawn clip, processed with the models shipped, and what was reported held against what is true of it."""
