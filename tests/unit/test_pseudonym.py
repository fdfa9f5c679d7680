"""Pseudonyms: one secret for an installation, however many jobs ask first, and of no use to anyone else."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from cdpr import pseudonym as room
from cdpr.pseudonym import SECRET, SecretError, pseudonym


def test_jobs_that_start_together_share_one_secret_that_its_owner_alone_may_read(tmp_path):
    with ThreadPoolExecutor(16) as jobs:
        list(jobs.map(lambda _: room._make_secret(tmp_path / SECRET), range(64)))
    first = pseudonym(tmp_path, "Pneumonia")
    assert [path.name for path in tmp_path.iterdir()] == [SECRET]
    assert (tmp_path / SECRET).stat().st_mode & 0o777 == 0o600
    room._read_secret.cache_clear()  # as another job would
    assert pseudonym(tmp_path, "Pneumonia") == first != pseudonym(tmp_path, "Sepsis")
    assert pseudonym(tmp_path / "elsewhere", "Pneumonia") != first and len(first) == 16


@pytest.mark.parametrize("damage", ["", "abc", "00" * 31])
def test_a_damaged_secret_is_an_error_and_is_never_replaced(tmp_path, damage):
    (tmp_path / SECRET).write_text(damage)
    with pytest.raises(SecretError, match=f"{SECRET}: the secret is damaged"):
        pseudonym(tmp_path, "Pneumonia")
    assert (tmp_path / SECRET).read_text() == damage
