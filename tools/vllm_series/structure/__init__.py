"""Merging by the syntax tree, where lines that only stand beside a change stop a merge by lines."""
