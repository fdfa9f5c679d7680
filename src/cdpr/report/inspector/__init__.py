"""The decision inspector: a static site that shows why an agent did what it did, decision by decision."""
