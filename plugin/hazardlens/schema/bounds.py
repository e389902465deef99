"""Where the mask ends what a schema leaves without an end."""

MOST_CHARACTERS = (256, 64, 16)
"""Characters of a text; the second and third where a pattern cannot be held at more."""

MOST_ITEMS = 16
"""Items of an array."""
