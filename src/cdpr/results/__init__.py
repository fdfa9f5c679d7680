"""What was measured, asked for in one way, and typed tables."""
