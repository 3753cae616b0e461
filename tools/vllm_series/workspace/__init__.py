"""What touches git: the scratch repository of a rebase, and the rebase in it."""
