"""The demo's detector: how it is trained, how it is measured."""
