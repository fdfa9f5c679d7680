"""What the paper claims, what the results at hand say of it, and the paper audited against itself."""
