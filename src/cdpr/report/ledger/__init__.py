"""Every claim of the paper, with a verdict on it from the results of this pipeline (the ledger)."""
