"""One short file per algorithm. Each has ``build(context) -> Algorithm``; the trainer imports the one it needs."""
