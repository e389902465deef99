"""A remote VLM: any OpenAI-compatible server, called through `ultralytics.LLM`, proven to enforce, never trusted."""
