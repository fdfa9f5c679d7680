"""The expert study: decisions of several methods at the same states, rated blindly on five dimensions.

:mod:`.decisions` samples states from episodes and gets the decision of every method there. :mod:`.forms` hides the
authors of the decisions and writes the raters' forms. :mod:`.ratings` reads the completed forms.
:mod:`.analysis` opens the key with the authors. Where no physician rates, :mod:`.simulated` raters do, and every result
says so.
"""
