"""The demo's vision-language model: how it is built, what it is taught, how it is measured."""
