"""Patch series for vLLM: placed exactly or refused, applied all or nothing, undone to the byte."""

__version__ = "0.1.0"
