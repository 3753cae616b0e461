"""Where each hunk of a series stands on each release: the engine behind `check`."""
