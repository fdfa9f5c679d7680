"""Templates of tables in Markdown and LaTeX: a package of its own, so that an edit of the page's remakes no table."""
