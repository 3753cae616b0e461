"""Patch files as text: mail and unified diff read into a `Patch`, and written in their one form."""
