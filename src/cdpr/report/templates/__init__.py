"""Templates of the HTML page. A package of its own: an edit of them remakes the page and nothing else."""
