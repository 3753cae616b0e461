"""Tests of what each patch of the series does, on the patched files alone."""
