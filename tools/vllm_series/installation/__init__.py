"""The only writer of an installed tree: journal, lock, RECORD, the applied stack, the way back."""
