"""vLLM releases as the package index has them, read without installing anything."""
