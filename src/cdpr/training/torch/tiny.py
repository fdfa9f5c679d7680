"""Builds the tiny policy: a byte-level BPE tokenizer and a small Qwen3 with random weights. It is an ordinary Hugging
Face folder, which ``AutoModelForCausalLM`` and ``AutoTokenizer`` load."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from ...settings.schema import TinyModel

PAD, USER, ASSISTANT, END = "<|pad|>", "<|user|>", "<|assistant|>", "<|end|>"
CONTROL = (PAD, USER, ASSISTANT, END)
SCAFFOLD = ("REQUEST_TEST:", "FINAL_DIAGNOSIS:")  # the fixed words of an action; each is one token
# A phrase is a number, or the text between two punctuation marks with the mark behind it. It may have several words, so
# that a finding or an examination takes one or two tokens, and not five. Every token costs a decoding step.
_PHRASES = r"\d+|[^\d,.|:;()%\n]*[,.|:;()%\n]+\s*|[^\d,.|:;()%\n]+"
_LEAST_COUNT = 10  # a phrase that occurs at least this often becomes a token
_PHRASE_SHARE = 0.8  # of the tokens that are neither bytes nor fixed, at most this share are phrases; the rest is BPE's
# What every tiny policy has in tokenizer_config.json (``tokenizer``) and config.json (``model``), and the names of its
# sizes there (``sizes``).
_FILES: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
CHAT_TEMPLATE: str = _FILES["tokenizer"]["chat_template"]


def train_tokenizer(corpus: Iterable[str], vocab_size: int = 1600) -> Tokenizer:
    """Train a byte-level tokenizer of at most ``vocab_size`` tokens on the texts of ``corpus``. Frequent phrases, which
    may have several words, become one token each; all other text is encoded by BPE.

    BPE alone would spend its vocabulary on parts of the most frequent phrases, and would spell rare findings, which
    inform most, in letters. The chat control tokens are special tokens, so decoding leaves them out. The fixed words of
    an action (``REQUEST_TEST:``, ``FINAL_DIAGNOSIS:``) are ordinary single tokens, so that each takes one decoding
    step. Raises :class:`ValueError` when ``vocab_size`` cannot hold the 256 bytes and the added tokens.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    added = len(CONTROL) + len(SCAFFOLD)
    free = vocab_size - added - len(alphabet)  # tokens that are left for phrases and BPE
    if free < 0:
        raise ValueError(f"vocab_size {vocab_size} is too small: {len(alphabet)} bytes and {added} added tokens")
    # Count phrases: the most frequent become tokens. (A phrase of one byte is a token already.)
    by_phrase = pre_tokenizers.Split(Regex(_PHRASES), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    counts = _count_phrases(corpus, by_phrase)
    frequent = [phrase for phrase, count in counts.items() if count >= _LEAST_COUNT and len(phrase.encode()) > 1]
    frequent = sorted(frequent, key=lambda phrase: (-counts[phrase], phrase))[: round(_PHRASE_SHARE * free)]
    # BPE learns from all other phrases.
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence([by_phrase, to_bytes])
    size = vocab_size - len(SCAFFOLD) - len(frequent)  # tokens for BPE, with its bytes and the control tokens
    chat = list(CONTROL)  # control tokens of a conversation
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=chat, initial_alphabet=alphabet, show_progress=False)
    others = sorted(counts.keys() - set(frequent))
    bpe.train_from_iterator((phrase for phrase in others for _ in range(counts[phrase])), trainer)
    # Make one tokenizer with the tokens of both; a phrase that is a token as a whole is not merged from parts.
    learned = json.loads(bpe.to_str())["model"]
    vocabulary, merges = learned["vocab"], [(left, right) for left, right in learned["merges"]]
    for phrase in frequent:
        [(in_byte_letters, _)] = to_bytes.pre_tokenize_str(phrase)  # as the vocabulary spells it
        vocabulary.setdefault(in_byte_letters, len(vocabulary))  # a new token gets the next number
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    tokenizer.pre_tokenizer, tokenizer.decoder = bpe.pre_tokenizer, decoders.ByteLevel()
    tokenizer.add_special_tokens(chat)
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in SCAFFOLD])
    return tokenizer


def _count_phrases(corpus: Iterable[str], by_phrase: pre_tokenizers.Split) -> Counter[str]:
    """Count how often each phrase occurs in the texts of ``corpus``, leaving out the fixed words of actions
    (``REQUEST_TEST:``, ``FINAL_DIAGNOSIS:``). ``by_phrase`` splits a text into phrases."""
    fixed_words = re.compile("|".join(map(re.escape, SCAFFOLD)))
    texts = Counter(text for whole_text in corpus for text in fixed_words.split(whole_text) if text)
    counts: Counter[str] = Counter()
    for text, times in texts.items():  # each distinct text is split once
        for phrase, _ in by_phrase.pre_tokenize_str(text):
            counts[phrase] += times
    return counts


def build_tiny_policy(folder: Path, tiny: TinyModel, corpus: Iterable[str]) -> Path:
    """Write an untrained policy to ``folder`` as a Hugging Face folder, and return ``folder``. ``tiny`` has its sizes;
    its tokenizer is trained on the texts of ``corpus``.

    Equal settings and corpus give equal bytes. Raises :class:`ValueError` where ``hidden_size`` is no even multiple of
    ``heads``, or ``heads`` no multiple of ``kv_heads``.
    """
    if tiny.hidden_size % (2 * tiny.heads) or tiny.heads % tiny.kv_heads:
        raise ValueError(
            f"policy.tiny: hidden_size {tiny.hidden_size} must be an even multiple of heads {tiny.heads}, "
            f"and heads a multiple of kv_heads {tiny.kv_heads}"
        )
    tokenizer = train_tokenizer(corpus, tiny.vocab_size)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    text = json.dumps(_FILES["tokenizer"], indent=2, ensure_ascii=False) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
    _write_model(folder, tiny, tokenizer)
    return folder


def _write_model(folder: Path, tiny: TinyModel, tokenizer: Tokenizer) -> None:
    """Write ``config.json``, ``generation_config.json`` and untrained weights of the sizes ``tiny`` to ``folder``."""
    from .decoder import Decoder

    common = {"eos_token_id": tokenizer.token_to_id(END), "pad_token_id": tokenizer.token_to_id(PAD)}
    common |= {"transformers_version": metadata.version("transformers")}  # the version that defines these files
    config = _FILES["model"] | {name: getattr(tiny, size) for name, size in _FILES["sizes"].items()}
    config |= {"vocab_size": tokenizer.get_vocab_size(), "head_dim": tiny.hidden_size // tiny.heads}
    config["layer_types"] = ["full_attention"] * tiny.layers
    for name, content in (("config.json", config | common), ("generation_config.json", common)):
        (folder / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    Decoder.untrained(folder).save_pretrained(folder)
