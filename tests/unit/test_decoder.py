"""The tiny policy in torch alone is transformers' Qwen3 to the bit: weights, log-probabilities, gradients, files."""

import subprocess
import sys

import pytest
import torch
from toy import Grouped

from cdpr.settings.schema import TinyModel
from cdpr.training.torch.tiny import build_tiny_policy, train_tokenizer
from cdpr.training.torch.update import Segment, token_logprobs
from cdpr.training.torch.weights import load_model


@pytest.fixture(scope="module", params=[(1, 2), (3, 4)], ids=str)
def folder(request, tmp_path_factory):
    layers, heads = request.param
    tiny = TinyModel(hidden_size=64, layers=layers, heads=heads, intermediate_size=96, vocab_size=400)
    return build_tiny_policy(tmp_path_factory.mktemp("tiny") / "policy", tiny, ["fever, cough and 12 more."] * 30)


@pytest.mark.parametrize(
    "tiny", [TinyModel(hidden_size=60, heads=4), Grouped(hidden_size=48, heads=3)], ids=["width", "pairs"]
)
def test_widths_that_do_not_divide_are_refused(tiny, tmp_path):
    with pytest.raises(ValueError, match=r"policy\.tiny"):
        build_tiny_policy(tmp_path / "policy", tiny, ["fever"])


def test_frequent_phrases_leave_room_for_parts_of_words():
    """A phrase that comes often is a token, but only up to a share of the vocabulary."""
    phrases = [f"{one} {two}," for one in ("fever", "cough", "pain", "chills") for two in map(chr, range(97, 123))]
    tokens = train_tokenizer([" ".join(phrases)] * 12 + ["headache headache"] * 9, 340).get_vocab()
    whole = {token for token in tokens if "," in token and len(token) > 2}
    parts = {token for token in tokens if token in "headache" and len(token) > 1}
    assert len(tokens) <= 340 and 50 < len(whole) < 70 < len(phrases) and parts


def ids(count: int, seed: int) -> list[int]:
    return torch.randint(4, 250, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


SHARED = ids(300, 0)
ROWS = {
    "equal lengths": [[Segment(0, ids(40, 1), [20, 39])], [Segment(0, ids(40, 2), [9])]],
    "padding": [[Segment(0, ids(40, 1), [20, 39])], [Segment(0, ids(33, 2), [32])]],
    "pieces": [[Segment(0, ids(40, 1), [20]), Segment(20, ids(11, 3), [20, 30])], [Segment(0, ids(33, 2), [32])]],
    "a common beginning": [[Segment(0, SHARED + ids(40, 1), [339])], [Segment(0, SHARED + ids(33, 2), [310])]],
    "a beginning and pieces": [[Segment(0, SHARED + ids(40, 1), [339]), Segment(310, ids(20, 3), [312, 320])],
                               [Segment(0, SHARED + ids(33, 2), [310])]],
}  # fmt: skip


@pytest.mark.parametrize("rows", ROWS)
def test_values_and_gradients_are_those_of_transformers(folder, rows):
    results = []
    for tiny in (False, True):
        model = load_model(folder, tiny=tiny)
        values = token_logprobs(model, ROWS[rows])
        values.sum().backward()
        results.append((values.detach(), {name: parameter.grad for name, parameter in model.named_parameters()}))
    (theirs, expected), (ours, gradients) = results
    assert torch.equal(ours, theirs) and list(gradients) == list(expected)
    assert [name for name in expected if not torch.equal(gradients[name], expected[name])] == []


@pytest.mark.parametrize("count", [1, 2, 3, 17])
def test_no_token_sees_a_later_one_however_short_the_text(folder, count):
    with torch.no_grad():
        theirs, ours = (load_model(folder, tiny=tiny).model(torch.tensor([ids(count, 4)])) for tiny in (False, True))
    assert torch.equal(ours.last_hidden_state, theirs.last_hidden_state)


def test_random_weights_and_files_are_those_of_transformers(folder, tmp_path):
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    model.generation_config = GenerationConfig.from_pretrained(folder)
    model.save_pretrained(tmp_path / "theirs")
    load_model(folder, tiny=True).save_pretrained(tmp_path / "ours")
    for path in (tmp_path / "theirs").iterdir():
        assert path.read_bytes() == (tmp_path / "ours" / path.name).read_bytes() == (folder / path.name).read_bytes()


def test_training_the_tiny_policy_imports_torch_and_no_transformers():
    code = (
        "import cdpr.training.torch.trainer, cdpr.training.torch.warm_start, sys; print('transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
