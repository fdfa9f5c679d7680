"""Tables in Markdown and LaTeX."""
