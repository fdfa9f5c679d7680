"""Folders of weights: read as transformers reads them, or refused by the name of what is wrong."""

from __future__ import annotations

import contextlib
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_sampler import corpus
from toy import Grouped
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from cdpr.llm import model_folder
from cdpr.llm.sampler import InProcessSampler
from cdpr.llm.spec import ModelSpec
from cdpr.llm.transformer import FAMILIES
from cdpr.llm.types import Request, Sampling
from cdpr.settings import SettingsError
from cdpr.training.torch.tiny import build_tiny_policy
from cdpr.training.torch.weights import load_model

SIZES = dict(vocab_size=320, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=512, initializer_range=0.4, eos_token_id=3)  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}  # fmt: skip
ARCHITECTURES = {
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 8}),
    "qwen3 with biases, wide heads": (Qwen3Config, Qwen3ForCausalLM, {"attention_bias": True}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
    "qwen2, all heads": (Qwen2Config, Qwen2ForCausalLM, {"num_key_value_heads": 4, "rope_theta": 77.0}),
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "llama with biases, scaled": (LlamaConfig, LlamaForCausalLM,
                                  {"attention_bias": True, "mlp_bias": True, "rope_parameters": LLAMA3}),
}  # fmt: skip
IDS = [[5, 6, 7, 8], list(range(4, 120))]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return build_tiny_policy(tmp_path_factory.mktemp("policy") / "tiny", Grouped(vocab_size=320), corpus())


def save(tokenizer, folder, kind="qwen3", tied=False, **more):
    config, model, own = ARCHITECTURES[kind]
    torch.manual_seed(1)
    model = model(config(**SIZES | own, tie_word_embeddings=tied)).eval()
    with torch.no_grad():  # norms and biases begin as ones and zeros, which would hide their absence
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn(parameter.shape))
    model.save_pretrained(folder, **more)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer / name, folder / name)
    return folder


def differ(folder):
    """The largest difference of log-probabilities between ours and transformers', over the whole vocabulary."""
    sampler, model = InProcessSampler.from_folder(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    given, worst = tuple((i,) for i in range(320)), 0.0
    for ids in IDS:
        request = Request(tuple(ids), tuple(range(320)), Sampling(1), 0, given)
        ours = torch.tensor([c.logprobs[0] for c in sampler.sample_batch([request])[0]])
        with torch.no_grad():
            theirs = torch.log_softmax(model(torch.tensor([ids])).logits[0, -1].float(), -1)
        worst = max(worst, float((ours - theirs).abs().max()))
    return worst


def change(folder, **keys):
    """Change keys of config.json; None removes one."""
    config = json.loads((folder / "config.json").read_text()) | keys
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


def rewrite(path, edit):
    weights = load_file(path)
    edit(weights)
    save_file(weights, path, metadata={"format": "pt"})


@pytest.mark.parametrize("shards", [None, "20KB"], ids=["whole", "sharded"])
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_every_architecture_computes_the_logits_of_transformers(tokenizer, tmp_path, kind, tied, shards):
    more = {"max_shard_size": shards} if shards else {}
    folder = save(tokenizer, tmp_path, kind, tied, **more)
    assert (len(list(folder.glob("*.safetensors"))) > 2) == bool(shards)
    assert differ(folder) < 1e-4


def test_every_architecture_that_is_offered_is_compared():
    assert {kind.partition(" ")[0].strip(",") for kind in ARCHITECTURES} == {*FAMILIES}


@pytest.mark.parametrize("kind", ["qwen3 with biases, wide heads", "qwen2", "llama"])
def test_what_config_json_leaves_out_has_the_default_of_transformers(tokenizer, tmp_path, kind):
    folder = save(tokenizer, tmp_path, kind)
    change(folder, **dict.fromkeys(("rope_parameters", "head_dim", "max_position_embeddings", "tie_word_embeddings")))
    assert differ(folder) < 1e-4


def test_a_head_beside_a_tied_embedding_counts_as_in_transformers(tokenizer, tmp_path):
    folder = save(tokenizer, tmp_path, tied=True)
    rewrite(folder / "model.safetensors",
            lambda w: w.update({"lm_head.weight": w["model.embed_tokens.weight"].roll(1, 0)}))  # fmt: skip
    assert differ(folder) < 1e-4


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_weights_of_mixed_types_are_computed_in_the_type_of_the_configuration(tokenizer, tmp_path, dtype):
    folder = save(tokenizer, tmp_path)

    def mix(weights):
        for name in weights:
            weights[name] = weights[name].to(torch.float32 if "norm" in name else torch.bfloat16)

    rewrite(folder / "model.safetensors", mix)
    change(folder, dtype=dtype)
    assert InProcessSampler.from_folder(folder).transformer.dtype == torch.bfloat16
    assert {p.dtype for p in load_model(folder).parameters()} == {torch.float32}


def test_what_belongs_to_no_model_of_the_folder_may_be_beside_it(tokenizer, tmp_path):
    """Old rotary frequencies, pickled weights of the same model, and what people keep beside weights."""
    folder = save(tokenizer, tmp_path, "llama")
    rewrite(folder / "model.safetensors",
            lambda w: w.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}))  # fmt: skip
    for name in ("pytorch_model.bin", "optimizer.pt", "README.md", "training_args.bin", "modeling_custom.py"):
        (folder / name).write_bytes(b"x")
    (folder / "original").mkdir()
    (folder / "original" / "consolidated.safetensors").write_bytes(b"x")
    assert differ(folder) < 1e-4


# Folders that are refused


def shard_of(folder, tensor):
    return folder / json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"][tensor]


def remove_shard(tensor):
    return lambda folder: shard_of(folder, tensor).unlink()


def reindex(edit):
    def damage(folder):
        path = folder / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        edit(index["weight_map"])
        path.write_text(json.dumps(index))

    return damage


def edit_shard(tensor, edit):
    return lambda folder: rewrite(shard_of(folder, tensor), edit)


def earlier_shard(folder):
    shutil.copyfile(shard_of(folder, NORM), folder / "model-00009-of-00009.safetensors")


def put(name, content):
    return lambda folder: (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))


def cut(folder):
    path = shard_of(folder, HEAD)
    path.write_bytes(path.read_bytes()[:-7])


def one_file(folder):
    """The same weights in one file without an index."""
    weights = {}
    for path in folder.glob("*.safetensors"):
        weights |= load_file(path)
        path.unlink()
    (folder / "model.safetensors.index.json").unlink()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def both(folder):
    index = (folder / "model.safetensors.index.json").read_text()
    shards = {path: path.read_bytes() for path in folder.glob("*.safetensors")}
    one_file(folder)
    (folder / "model.safetensors.index.json").write_text(index)
    for path, content in shards.items():
        path.write_bytes(content)


def whole(edit):
    def damage(folder):
        one_file(folder)
        rewrite(folder / "model.safetensors", edit)

    return damage


def without_index(folder):
    (folder / "model.safetensors.index.json").unlink()


def pickled(folder):
    for path in folder.glob("model*"):
        path.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"x")


def configured(**keys):
    return lambda folder: change(folder, **keys)


def quantise(dtype):
    return lambda weights: weights.update(
        {n: (w * 10).to(dtype) for n, w in weights.items() if n.endswith("_proj.weight")}
    )


HEAD, NORM, DOWN, K = (
    "lm_head.weight", "model.norm.weight", "model.layers.1.mlp.down_proj.weight",
    "model.layers.0.self_attn.k_proj.weight",
)  # fmt: skip
BROKEN = {
    "shard with the head gone": (remove_shard(HEAD), "is missing, which model.safetensors.index.json lists"),
    "shard with a norm gone": (remove_shard(NORM), "is missing, which model.safetensors.index.json lists"),
    "index names a file elsewhere": (reindex(lambda m: m.update({NORM: "../weights.safetensors"})), "is missing"),
    "index without its map": (put("model.safetensors.index.json", {}), "no weight_map"),
    "index that is no JSON": (put("model.safetensors.index.json", "{"), "index.json: not JSON"),
    "index lists a tensor that is not there": (edit_shard(NORM, lambda w: w.pop(NORM)), f"{NORM} is not in the file"),
    "index lists a tensor in another shard": (
        reindex(lambda m: m.update({NORM: m["model.embed_tokens.weight"]})), f"{NORM} is not in the file"),
    "shard holds a tensor that is not listed": (reindex(lambda m: m.pop(NORM)), f"{NORM} is not in the file"),
    "model lacks a tensor": (whole(lambda w: w.pop(K)), f"the first is {K}"),
    "untied without a head": (whole(lambda w: w.pop(HEAD)), f"the first is {HEAD}"),
    "tensor in two shards": (edit_shard(HEAD, lambda w: w.update({DOWN: torch.ones(32, 48)})), f"{DOWN} is also in"),
    "shard of an earlier save": (earlier_shard,
                                 "an earlier or unfinished save"),
    "one file and shards": (both, "an earlier or unfinished save"),
    "unfinished file": (put("model.safetensors.tmp", ""), "an earlier or unfinished save"),
    "unfinished download": (put("model-00001.safetensors.incomplete", ""), "an earlier or unfinished save"),
    "shards without an index": (without_index, "there is no model.safetensors.index.json"),
    "pickled weights alone": (pickled, "are not read: save the model with save_pretrained"),
    "truncated file": (cut, "no whole safetensors file"),
    "page of an error in place of a file": (put("model.safetensors", "<html>"), "safetensors"),
    "other shape": (whole(lambda w: w.update({K: torch.ones(32, 16)})), r"has the shape \[32, 16\], but \[16, 32\]"),
    "a layer too many": (whole(lambda w: w.update({DOWN.replace("1", "2"): torch.ones(32, 48)})), "no weight of"),
    "a bias that the configuration lacks": (whole(lambda w: w.update({K.replace("weight", "bias"): torch.ones(16)})),
                                            "no weight of"),
    "a bias that only the configuration has": (configured(attention_bias=True), "are missing"),
    "a classifier": (whole(lambda w: w.update({"score.weight": torch.ones(2, 32)})), "score.weight is no weight of"),
    "other layers": (configured(num_hidden_layers=3), "are missing"),
    "other family": (configured(model_type="qwen2"), "are missing"),
    "no vocabulary": (configured(vocab_size=None), "vocab_size must be a positive integer"),
    "vocabulary larger than the embedding": (configured(vocab_size=300), "has the shape"),
    "sliding window": (configured(use_sliding_window=True), "use_sliding_window"),
    "sliding layers": (configured(layer_types=["sliding_attention"] * 2), "layer_types"),
    "partial rotation": (configured(partial_rotary_factor=0.5), "partial_rotary_factor"),
    "other rotation": (configured(rope_scaling={"type": "yarn", "factor": 4.0}), "rope_type"),
    "rotation without its factors": (configured(rope_scaling={"rope_type": "llama3"}), "factor of the rotary"),
    "other activation": (configured(hidden_act="gelu"), "hidden_act"),
    "configuration that is a list": (put("config.json", []), "not a JSON object"),
    "FP8": (whole(quantise(torch.float8_e4m3fn)), "has the type F8_E4M3"),
    "int8": (whole(quantise(torch.int8)), "has the type I8"),
    "AWQ by its tensors": (whole(lambda w: w.update({K.replace("weight", "qweight"): torch.ones(16, 4)})), "quantised"),
    "scales left aside": (whole(lambda w: w.update({K + "_scale_inv": torch.ones(1)})), "quantised"),
    "FP8 by its configuration": (configured(quantization_config={"quant_method": "fp8"}), r"quantised \(fp8\)"),
    "bitsandbytes": (configured(quantization_config={"load_in_4bit": True, "quant_method": "bitsandbytes"}),
                     r"quantised \(bitsandbytes\)"),
    "compressed-tensors": (configured(compression_config={"quant_method": "compressed-tensors"}),
                           r"quantised \(compressed-tensors\)"),
    "GPTQ beside": (put("quantize_config.json", {"bits": 4}), "quantize_config.json: the weights are quantised"),
    "ModelOpt beside": (put("hf_quant_config.json", {"quantization": {}}), "the weights are quantised"),
    "adapter": (put("adapter_config.json", {"peft_type": "LORA"}), "adapter"),
    "code": (configured(auto_map={"AutoModelForCausalLM": "modeling_x.X"}), "config.json: auto_map names code"),
    "code of a tokenizer": (put("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["t.T", None]}}),
                            "tokenizer_config.json: auto_map names code"),
    "another file by name": (configured(transformers_weights="other.safetensors"), "transformers_weights"),
    "end of a turn beyond the vocabulary": (put("generation_config.json", {"eos_token_id": [3, 999]}), "token 999"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_folder_that_is_not_whole_or_not_plain_is_refused_by_name(tokenizer, tmp_path, name):
    folder, (damage, message) = save(tokenizer, tmp_path, max_shard_size="20KB"), BROKEN[name]
    assert differ(folder) < 1e-4
    damage(folder)
    with pytest.raises(SettingsError, match=message) as error:
        InProcessSampler.from_folder(folder)
    assert str(folder) in str(error.value)
    if name != "end of a turn beyond the vocabulary":
        with pytest.raises(SettingsError, match=message):
            load_model(folder)


def test_the_code_of_a_model_is_not_run_even_where_its_name_would_slip_through(tokenizer, tmp_path, monkeypatch):
    folder, mark = save(tokenizer, tmp_path), tmp_path / "was run"
    BROKEN["code"][0](folder)
    (folder / "modeling_x.py").write_text(
        f"open({str(mark)!r}, 'w').close()\nfrom transformers import LlamaForCausalLM as X\n"
    )
    monkeypatch.setattr(model_folder, "refuse_code", lambda folder: None)
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    with contextlib.suppress(Exception):
        load_model(folder)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["shard with the head gone", "FP8 by its configuration", "adapter", "code", "int8"])
def test_a_folder_is_refused_before_any_work(tokenizer, tmp_path, name):
    folder = save(tokenizer, tmp_path, max_shard_size="20KB")
    ModelSpec(where=str(folder), credentialed=False).check()
    BROKEN[name][0](folder)
    with pytest.raises(SettingsError, match=BROKEN[name][1]):
        ModelSpec(where=str(folder), credentialed=False).check()


def test_tokens_without_a_row_in_the_embedding_are_refused(tokenizer, tmp_path):
    folder = save(tokenizer, tmp_path)
    content = json.loads((folder / "tokenizer.json").read_text())
    content["added_tokens"].append(content["added_tokens"][0] | {"id": 320, "content": "<|image|>"})
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(SettingsError, match="token 320, but the model's embedding has 320 rows"):
        InProcessSampler.from_folder(folder)
