"""Vision-language models: the contract, the prompt, and the local model with masked decoding."""

from hazardlens.vlm.base import Answer, Question, Reply, Shown, View, Vlm

__all__ = ["Answer", "Question", "Reply", "Shown", "View", "Vlm"]
