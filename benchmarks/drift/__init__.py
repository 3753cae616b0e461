"""How often a small patch lands in the right place of a later release, tool beside tool.

The judge knows the right place without any of the tools: whole files of the two releases are
aligned line by line, and a line that the alignment keeps is where it is. See README.md.
"""
