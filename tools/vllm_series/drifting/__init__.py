"""When each hunk's place changed upstream, how, and how likely the next change is."""
