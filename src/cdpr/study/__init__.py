"""The expert study: decisions of several methods at the same states, rated blindly on five dimensions.

:mod:`.sampling` takes states from workups, :mod:`.proposals` asks every method what it would do there, :mod:`.blinding`
hides who said what, :mod:`.forms` writes what raters fill in, :mod:`.ratings` reads what comes back, :mod:`.analysis`
opens the key. Where no physician rates, :mod:`.simulated` raters do, and everything says so.
"""
