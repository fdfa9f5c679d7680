"""Documents that are written by templates: data cards. ``form.md`` and ``form.html`` say how their parts look in
Markdown and in HTML."""

import re
import sys
from typing import Any

from ... import escape


def render(document: str, form: str = "form.md", **words: Any) -> str:
    """Return a document (``card.txt``) as text: in ``form.md`` as a page of Markdown, in ``form.html`` as a part of a
    page of HTML. ``words`` are what its template shows."""
    options = {"autoescape": True, "finalize": escape.html} if form == "form.html" else {}
    template = escape.environment(sys.modules[__name__], **options).get_template(document)
    return re.sub(r"\n{3,}", "\n\n", template.render(form=form, **words)).strip() + "\n"
