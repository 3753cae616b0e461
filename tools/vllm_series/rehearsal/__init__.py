"""What a series does to vLLM's own scheduler, in every mode, with no model behind it."""
