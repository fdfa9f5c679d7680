"""What ordering an examination costs now (paper, appendix "Unified examination cost")."""

from collections.abc import Collection

from ..cases import CaseRecord


def charge(case: CaseRecord, ordered: Collection[str], exam_key: str) -> float:
    """US dollars charged for ``exam_key`` when the results of ``ordered`` are known already.

    A member of a billing group charges its parent, once per case; so does any examination for itself.
    Raises KeyError for an examination without a price.
    """
    group = case.exam_billing_group.get(exam_key)
    paid = exam_key in ordered or (group is not None and any(case.exam_billing_group.get(k) == group for k in ordered))
    return 0.0 if paid else case.exam_cost_map[exam_key]
