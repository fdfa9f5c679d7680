"""Results in the formats of other tools. Each needs its own optional extra, or none."""
