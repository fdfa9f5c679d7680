"""The ledger: every claim of the paper, with the verdict of the results on it."""
