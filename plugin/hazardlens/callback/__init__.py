"""An Ultralytics model whose own results carry the fields: `attach` hangs the pipeline into its callbacks."""

from hazardlens.callback.counts import Counts
from hazardlens.callback.plugin import Plugin, attach
from hazardlens.callback.results import FieldResults

__all__ = ["Counts", "FieldResults", "Plugin", "attach"]
