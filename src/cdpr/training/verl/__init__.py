"""The engine ``verl``: our episode, credit and settings behind verl's public hooks (docs/design/verl.md).

``plan`` says what verl is told, ``hooks`` is what it loads, ``servers`` what a run starts beside it, ``cpu`` what a
machine without a GPU needs.
"""
