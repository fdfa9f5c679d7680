"""Templates of the expert study: the raters' form and the protocol."""
