"""What calls cost, the cap that holds across processes and kills, and the price of a target before anything is sent."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError
from served import Server
from test_recording import ASK, GREEDY, NOWHERE, ask, spec_of

from cdpr.llm import ModelFailure, ModelUnavailable, Usage, open_model
from cdpr.llm.spending import Spending, bound_prompt_tokens, render_spent, spent
from cdpr.llm.types import SYSTEM
from cdpr.pipeline.cli import explain, main
from cdpr.settings import ModelEntry, SettingsError
from cdpr.settings.models import Calls

PRICES = {"input": 1.0, "output": 10.0}  # the server counts 100 and 50 tokens
CALL = 0.0006


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("server")) as running:
        yield running


def priced(state: Path, url: str, kind: str, budget: float | None = None, mode: str = "live", **more):
    spec = spec_of(state, url, kind, entry=ModelEntry(id=kind, at=url, prices=PRICES), **more)
    return replace(spec, calls=Calls(mode=mode, budget_usd=budget))


# What a call cost


def test_an_answer_costs_what_was_told_and_a_recorded_one_nothing(server, tmp_path):
    spec = priced(tmp_path, server.url, "counts", mode="record")
    token = SYSTEM.set("doctor")
    ask(spec, samples=(0, 1))
    ask(spec, samples=(0, 1))
    SYSTEM.reset(token)
    [found] = spent(tmp_path).itertuples()
    assert (found.system, found.model, found.calls) == ("doctor", "counts", 2)
    assert (found.prompt_tokens, found.completion_tokens) == (200, 100)
    assert found.usd == pytest.approx(2 * CALL) and found.unknown_calls == found.reserved_usd == 0


@pytest.mark.parametrize(("kind", "attempts"), [("hangs", 1), ("drips", 1), ("cut_off", 2), ("garbage", 3),
                                                ("shapeless", 3)])  # fmt: skip
def test_what_may_have_been_billed_counts_in_its_worst_case(server, tmp_path, kind, attempts):
    with pytest.raises(ModelFailure):
        ask(priced(tmp_path, server.url, kind))
    [found] = spent(tmp_path).itertuples()
    seen = server.count(kind)
    worst = (bound_prompt_tokens(ASK) * 1.0 + GREEDY.max_tokens * 10.0) / 1e6
    assert found.calls == 0 and attempts <= found.unknown_calls <= 3
    assert found.unknown_calls <= seen or kind == "cut_off"  # where a request was lost with its connection
    assert found.usd == found.unknown_usd == pytest.approx(found.unknown_calls * worst)


@pytest.mark.parametrize("kind", ["status500", "status429", "status404", "status400", "tomorrow", "nobody"])
def test_what_was_refused_costs_nothing(server, tmp_path, kind):
    with pytest.raises(ModelFailure):
        ask(priced(tmp_path, NOWHERE if kind == "nobody" else server.url, kind))
    assert spent(tmp_path).empty


def test_an_empty_answer_is_billed_though_not_kept(server, tmp_path):
    assert ask(priced(tmp_path, server.url, "empty")) == [" "]
    [found] = spent(tmp_path).itertuples()
    assert found.calls == 2 and found.usd == pytest.approx(2 * CALL)


def test_no_prompt_has_more_tokens_than_its_worst_case(tmp_path):
    """A tokeniser without a single merge, which makes a token of every byte."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {letter: n for n, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    bytewise = Tokenizer(models.BPE(vocabulary, []))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    for text in ("fever", "Fieber über 39 °C", "发热三天", "\N{GRINNING FACE}" * 9, " " * 40):
        tokens = len(bytewise.encode(text).ids)
        assert tokens >= len(text) and bound_prompt_tokens([{"role": "user", "content": text}]) >= tokens


# The cap


def test_a_used_up_budget_sends_nothing(server, tmp_path):
    spec, before = priced(tmp_path, server.url, "counts", 0.0015), server.count("counts")
    ask(spec)
    with pytest.raises(ModelUnavailable) as caught:
        for _ in range(5):
            ask(spec)
    message, used = explain(caught.value), server.count("counts") - before
    assert used * CALL <= 0.0015 and spent(tmp_path).usd.sum() == pytest.approx(used * CALL)
    for part in ("are spent", "reserved", "may cost", "calls.budget_usd is 0.0015", "raise it", "cdpr spend"):
        assert part in message
    assert ask(replace(spec, calls=Calls(mode="live", budget_usd=1.0))), "a raised budget goes on"


SPENDER = """
import asyncio, sys
from pathlib import Path
from test_recording import ASK
from test_spending import priced
from cdpr.llm import ModelUnavailable, Sampling, open_model

async def main(state, url, kind, calls, budget):
    model = open_model(priced(Path(state), url, kind, float(budget), timeout=30))
    print("ready", flush=True)
    async def one(number):
        try:
            await model.chat([*ASK, {"role": "user", "content": number}], (0,), Sampling(64, 0.0), 0)
            print("answered", flush=True)
        except ModelUnavailable as error:
            assert "budget" in str(error), error
            print("refused", flush=True)
    await asyncio.gather(*(one(str(n)) for n in range(int(calls))))

asyncio.run(main(*sys.argv[1:]))
"""


def spender(state: Path, server: Server, kind: str, calls: int, budget: float) -> subprocess.Popen:
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-c", SPENDER, str(state), server.url, kind, str(calls), str(budget)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path})


def test_the_cap_holds_across_processes(server, tmp_path):
    """Side by side they use nearly all of it, and never more: who finds no room waits for those under way."""
    budget, before = 0.0301, server.count("doctor_slow")
    spenders = [spender(tmp_path, server, "doctor_slow", 30, budget) for _ in range(3)]
    told = [line for process in spenders for line in process.communicate(timeout=400)[0].split()]
    answered, used = told.count("answered"), server.count("doctor_slow") - before
    assert answered == used and answered + told.count("refused") == 90
    assert 48 <= answered <= 50, "50 calls cost 0.03 USD; the worst case of one more is 0.0008"
    assert spent(tmp_path).usd.sum() == pytest.approx(answered * CALL)


def test_money_that_a_killed_process_held_is_no_reason_to_wait(server, tmp_path, caplog):
    """Its calls may have been billed: they count as spent at once, and who has no room says so."""
    before, deadline = server.count("hangs"), time.monotonic() + 300
    process = spender(tmp_path, server, "hangs", 3, 1.0)
    while server.count("hangs") < before + 3:  # each is reserved before it is sent
        assert time.monotonic() < deadline
        time.sleep(0.05)
    [held] = spent(tmp_path).itertuples()
    bill = Spending.open(priced(tmp_path, NOWHERE, "m", held.reserved_usd), "model m")
    with pytest.raises(TimeoutError):  # while it runs, its calls may still cost less
        asyncio.run(asyncio.wait_for(bill.reserve(100, 10), 1.0))
    assert "calls under way hold" in caplog.text and "model m" in caplog.text
    process.kill()
    process.communicate()
    with pytest.raises(ModelUnavailable, match="budget is used up"):
        asyncio.run(asyncio.wait_for(bill.reserve(100, 10), 20))
    [left] = spent(tmp_path).itertuples()
    assert held.usd == 0 and (left.usd, left.unknown_usd) == (pytest.approx(held.reserved_usd),) * 2
    assert left.unknown_calls == 3 and left.reserved_usd == 0


def test_usage_that_no_call_can_have_is_unknown_and_priced_at_its_worst(server, tmp_path):
    spec = priced(tmp_path, server.url, "odd_usage", mode="record")
    assert ask(spec) == ["paid for"] == ask(spec)
    [bill] = spent(tmp_path).itertuples()
    worst = (bound_prompt_tokens(ASK) * 1.0 + GREEDY.max_tokens * 10.0) / 1e6
    assert (bill.calls, bill.unknown_calls, bill.usd) == (0, 1, pytest.approx(worst))


def test_the_bill_adds_up_what_every_model_took(server, tmp_path):
    nothing = f"Nothing was spent: {tmp_path} holds no call of a model with prices; other models are not listed."
    assert render_spent(str(tmp_path), None) == nothing
    for model in ("odd_usage", "counts"):
        ask(priced(tmp_path, server.url, model, mode="record"))
    bills = [*spent(tmp_path).itertuples()]
    assert len(bills) == 2 and all(bill.usd > 0 for bill in bills)
    text = render_spent(str(tmp_path), 1.0)
    total = next(line for line in text.splitlines() if line.split()[:1] == ["total"]).split()
    calls, unknown, usd = (sum(getattr(b, name) for b in bills) for name in ("calls", "unknown_calls", "usd"))
    assert (total[1], total[4], total[5]) == (f"{calls}", f"{usd:,.4f}", f"{unknown}") and unknown == 1
    assert "Unknown: they timed out" in text
    assert text.endswith(f"calls.budget_usd is 1.00; {1 - usd:,.2f} USD are left.")
    assert render_spent(str(tmp_path), None).endswith("calls.budget_usd is not set.")


def test_a_call_waits_for_those_under_way(tmp_path):
    bill = Spending.open(priced(tmp_path, NOWHERE, "m", 0.003), "model")

    async def work() -> float:
        first, started = await bill.reserve(1000, 100), time.monotonic()
        second = asyncio.create_task(bill.reserve(1000, 100))
        await asyncio.sleep(0.4)
        assert not second.done()
        bill.book(first, Usage(500, 10))  # it took less than was put aside
        await asyncio.wait_for(second, 5)
        return time.monotonic() - started

    assert asyncio.run(work()) >= 0.4


def test_a_call_that_takes_the_last_of_the_budget_is_made(tmp_path):
    """Half a dollar each: what may still fit waits, what fits exactly goes out, and then nothing."""
    bill, half = Spending.open(priced(tmp_path, NOWHERE, "m", 1.0), "model"), (500_000, 0)

    async def work() -> None:
        first, second = [await asyncio.wait_for(bill.reserve(*half), 5) for _ in range(2)]
        bill.book(first, Usage(*half))
        third = asyncio.create_task(bill.reserve(*half))
        await asyncio.sleep(0.3)
        assert not third.done()
        bill.book(second, "free")
        bill.book(await asyncio.wait_for(third, 5), Usage(*half))
        with pytest.raises(ModelUnavailable, match="budget is used up"):
            await asyncio.wait_for(bill.reserve(1, 0), 5)

    asyncio.run(work())


def test_a_budget_needs_prices(tmp_path):
    remote = spec_of(tmp_path, "https://api.example.org/v1", "m")
    budgeted = replace(remote, calls=Calls(budget_usd=5.0))
    with pytest.raises(SettingsError, match=r"model 'm' at api\.example\.org: .*prices.*workflow/models\.yaml"):
        open_model(budgeted)
    for free in (remote, replace(budgeted, where=NOWHERE), priced(tmp_path, "https://api.example.org/v1", "m", 5.0)):
        open_model(free)
    gateway = ModelEntry(id="m", provider="openai", at=NOWHERE)  # to a provider who sends bills
    with pytest.raises(SettingsError, match="prices"):
        open_model(replace(budgeted, where=NOWHERE, entry=gateway))


@pytest.mark.parametrize("entry", [{"prices": {"input": 1.0}}, {"prices": {"output": 1.0}},
                                   {"extra": {"max_tokens": 9}}, {"extra": {"n": 3}}])  # fmt: skip
def test_no_half_of_a_price_and_no_limit_past_the_reservation(entry):
    with pytest.raises(ValidationError, match=r"Field required|set elsewhere"):
        ModelEntry.model_validate({"id": "m", **entry})


# Waiting as the server asks


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
def test_retry_after_is_honoured(protocol, tmp_path):
    with Server(tmp_path) as server:
        url = server.url if protocol == "openai" else "anthropic:" + server.url.removesuffix("/v1")
        assert ask(spec_of(tmp_path, url, "retry_after", retries=2)) == ["well again"]
        first, second, third = server.times("retry_after")
        assert second - first >= 0.3 and third - second >= 0.9


def test_nobody_waits_until_tomorrow(server, tmp_path):
    before, started = server.count("tomorrow"), time.monotonic()
    with pytest.raises(ModelUnavailable, match="status 429, and the server asks to wait 86400 seconds; start again"):
        ask(spec_of(tmp_path, server.url, "tomorrow", retries=5))
    assert server.count("tomorrow") == before + 1 and time.monotonic() - started < 5


@pytest.fixture
def overlay(tmp_path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(f"paths: {{results: {tmp_path / 'results'}, state: {tmp_path / 'state'}}}\n")
    return path


def test_the_command_tells_what_was_spent(overlay, server, capsys):
    settings = ["--settings", "config.yaml", str(overlay)]
    assert main(["spend", *settings]) == 0
    assert "Nothing was spent" in capsys.readouterr().out
    state = overlay.parent / "state"
    ask(priced(state, server.url, "counts"))
    with pytest.raises(ModelFailure):
        ask(priced(state, server.url, "garbage"))
    assert main(["spend", *settings]) == 0
    told = capsys.readouterr().out
    assert "0.0006" in told and "100" in told and "may have been billed" in told and "budget_usd is not set" in told
