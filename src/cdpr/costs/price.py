"""Prices of the examinations in case records, and the charge of an order (paper, appendix "Unified examination
cost")."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from ..cases import CaseRecord, iterate_records, write_records
from ..files import write_csv
from ..job import Job
from ..settings import Settings
from ..settings.schema import Costs
from .catalogue import Catalogue, Price, load_catalogue, price_of, with_overrides
from .coverage import COVERAGE_COLUMNS, REVIEW_COLUMNS, coverage, review


def map_costs(settings: Settings, job: Job) -> None:
    """Stage ``map_costs``: price the records one by one; write the source of every price, and a table of examinations
    without a code, to be filled in as overrides.

    The review table has every name and is beside the cases. In the coverage table, which goes into reports, names
    outside the vocabulary are pooled if the cases are credentialed.
    """
    catalogue = load_catalogue(job.inputs.get("catalogue"))
    if "overrides" in job.inputs:
        catalogue = with_overrides(catalogue, job.inputs["overrides"])
        print(f"{job.inputs['overrides']}: {len(catalogue.overrides)} prices; rows without one are passed over")
    counts, protection = Counter[str](), set[bool]()

    def priced() -> Iterator[CaseRecord]:
        for record in iterate_records(job.inputs["records"]):
            counts.update(list(record.key_pertinent_results_dict))
            protection.add(record.credentialed)
            yield price_case(record, settings.costs, catalogue)

    cases = write_records(job.out["cases"], priced())
    rows = coverage(counts, settings.costs, catalogue, pool_unknown=True in protection)
    write_csv(job.out["coverage"], COVERAGE_COLUMNS, rows)
    unmapped = review(counts, settings.costs, catalogue)
    write_csv(job.out["review"], REVIEW_COLUMNS, unmapped)
    job.metrics.update(cases=cases, examinations=len(counts), unmapped=len(unmapped))
    print(f"{job.options['dataset']}: {cases} cases, {len(counts)} examinations, {len(unmapped)} without a code")


def price_case(record: CaseRecord, settings: Costs, catalogue: Catalogue) -> CaseRecord:
    """The record with ``exam_cost_map`` and ``exam_billing_group`` filled.

    Every member of a billing group has the price of the whole group, so that the first order of any member costs the
    same; :func:`charge` charges it once.
    """
    prices = {key: price_of(key, settings, catalogue) for key in record.key_pertinent_results_dict}
    costs, groups = group_prices(prices, settings.group_price)
    return CaseRecord.model_validate(record.model_dump() | {"exam_cost_map": costs, "exam_billing_group": groups})


def group_prices(prices: Mapping[str, Price], rule: str) -> tuple[dict[str, float], dict[str, str]]:
    """(US dollars, billing group) by examination key, with the rule of the billing groups applied.

    Members priced as the same examination (analytes of one panel) are one item, at its highest price; the items of a
    group are in the order of the record.
    """
    groups = {key: price.group for key, price in prices.items() if price.group is not None}
    items: dict[str, dict[str, float]] = {}
    for key, group in groups.items():
        amounts, price = items.setdefault(group, {}), prices[key]
        amounts[price.examination] = max(price.usd, amounts.get(price.examination, 0.0))
    choose = {"max": max, "sum": lambda amounts: round(sum(amounts), 2), "first": lambda amounts: next(iter(amounts))}
    usd = {group: choose[rule](amounts.values()) for group, amounts in items.items()}
    return {key: usd[groups[key]] if key in groups else price.usd for key, price in prices.items()}, groups


def charge(case: CaseRecord, ordered: Collection[str], exam_key: str) -> float:
    """US dollars charged for ``exam_key`` when the results of ``ordered`` are known already.

    A member of a billing group charges its parent, once per case; so does any examination for itself.
    Raises KeyError for an examination without a price.
    """
    group = case.exam_billing_group.get(exam_key)
    paid = exam_key in ordered or (group is not None and any(case.exam_billing_group.get(k) == group for k in ordered))
    return 0.0 if paid else case.exam_cost_map[exam_key]
