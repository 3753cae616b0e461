"""Patches of a series as others take them: a quilt folder, an mbox, a branch, one diff."""
