"""The template of data cards, ``card.txt``, and how its parts look in Markdown and in HTML."""
