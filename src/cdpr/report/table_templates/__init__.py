"""Templates of tables in Markdown and LaTeX. They are a package of their own: a change of the page's templates must not
remake the tables."""
