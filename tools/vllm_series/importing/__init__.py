"""Changes of others made patches of a series: diffs, mails, quilt folders, commits, scripts."""
