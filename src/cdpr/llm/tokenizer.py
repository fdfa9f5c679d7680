"""The tokenizer and chat template of a Hugging Face folder, without importing transformers.

The prompts of an episode are built from token ids: :meth:`ChatTokenizer.encode_conversation` gives those of the first
prompt, :meth:`ChatTokenizer.encode_user_turn` those between two assistant turns. Sampled tokens are never decoded and
tokenised again.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer

from ..settings import SettingsError, refuse
from .chat_template import compile_template, render
from .model_folder import read_json
from .types import Messages

# The text of a test turn of the assistant. No template has this word itself, so it shows where the turn is rendered.
_MARKER = "QZJXKVW"
_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class ChatTokenizer:
    """Tokenizer and chat template of a Hugging Face ``folder``. ``template`` has further arguments of the chat
    template, such as ``enable_thinking``.

    Attributes: ``end_of_turn``, the token id that ends an assistant turn; ``eos_ids``, all token ids that end a
    completion; ``largest_id``, the largest token id. Raises :class:`SettingsError` for a folder without
    ``tokenizer.json`` or chat template, and for a template that cannot be rendered, exceeds its limits, does not show
    assistant turns, or ends them with anything but a special token.
    """

    def __init__(self, folder: str | Path, template: Mapping[str, Any] | None = None) -> None:
        """Read the tokenizer and the chat template of a Hugging Face folder. ``template`` has further arguments of the
        template. Raises SettingsError for a folder or a template that cannot be used."""
        self.folder = Path(folder)
        path = self.folder / "tokenizer.json"
        refuse(__package__, "tokenizer", {"path": path})
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises no narrower type
            raise SettingsError(f"{path}: no tokenizer ({error}); download the model again") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.largest_id: int = max(self._tokenizer.get_vocab(with_added_tokens=True).values())
        config = read_json(self.folder / "tokenizer_config.json")
        tokens = {name: config[name] for name in _SPECIAL_TOKENS if config.get(name) is not None}
        # A token is its text, or a dictionary with the text as ``content``.
        special_tokens = {name: t.get("content") if isinstance(t, dict) else t for name, t in tokens.items()}
        # transformers passes `tools` and `documents` to every template.
        self._arguments = {"tools": None, "documents": None} | special_tokens | dict(template or {})
        self._template = compile_template(self._read_template(config), self._arguments, self.folder)
        self._end_text, self.end_of_turn = self._find_end_of_turn()
        eos = [self.end_of_turn, self._tokenizer.token_to_id(special_tokens.get("eos_token", ""))]
        for file in ("generation_config.json", "config.json"):
            ids = read_json(self.folder / file).get("eos_token_id")
            eos += ids if isinstance(ids, list) else [ids]
        self.eos_ids = frozenset(i for i in eos if i is not None)  # None: a file or the vocabulary has no such token

    def encode(self, text: str) -> list[int]:
        """Encode a text as token ids. Special tokens that are written in the text are recognised; none is added."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Decode token ids to text, without special tokens."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def decode_batch(self, sequences: Iterable[Sequence[int]]) -> list[str]:
        """Decode many sequences of token ids to one text each, without special tokens."""
        return self._tokenizer.decode_batch([list(ids) for ids in sequences], skip_special_tokens=True)

    def finish_reason(self, ids: Sequence[int]) -> Literal["stop", "length"]:
        """Why a sampled completion with the token ids ``ids`` (at least one) ended: ``stop`` if its last token is an
        end token, else ``length``."""
        return "stop" if ids[-1] in self.eos_ids else "length"

    def render(self, messages: Messages) -> str:
        """Render a conversation, and the start of the assistant's reply to it, as the text of a prompt. Messages have
        ``role`` (system, user, assistant) and ``content``. Raises SettingsError where the template fails or exceeds its
        limits."""
        return render(self._template, messages, self._arguments, self.folder)

    def encode_conversation(self, messages: Messages) -> list[int]:
        """Encode a conversation, and the start of the assistant's reply to it, as the token ids of a prompt. Raises
        SettingsError as :meth:`render`."""
        return self.encode(self.render(messages))

    def encode_user_turn(self, user_text: str) -> list[int]:
        """Encode what comes between two assistant turns: what the template writes behind the end-of-turn token of the
        first, the user's message ``user_text``, and the start of the second. Returns token ids, to be appended to those
        of the first turn.

        A turn that was cut by ``max_tokens`` lacks its end-of-turn token: append :attr:`end_of_turn` first.
        """
        return self.encode(self._render_after_assistant(user_text)[len(self._end_text) :])

    def _render_after_assistant(self, user_text: str) -> str:
        """Render what follows the content of an assistant turn: the end of the turn, the user's message ``user_text``,
        and the start of the next assistant turn. Raises SettingsError where the template does not show assistant
        turns."""
        turns = (("user", "hello"), ("assistant", _MARKER), ("user", user_text))
        rendered = self.render([{"role": role, "content": content} for role, content in turns])
        _, marker, after = rendered.partition(_MARKER)
        if not marker:
            raise SettingsError(f"{self.folder}: the chat template does not show the text of an assistant turn")
        return after

    def _find_end_of_turn(self) -> tuple[str, int]:
        """Find the special token with which the template ends an assistant turn, such as ``<|im_end|>``. Returns its
        text and its id. Raises SettingsError where the template ends the turn with anything else."""
        after = self._render_after_assistant("hello")
        ids = {token.content: i for i, token in self._tokenizer.get_added_tokens_decoder().items()}  # by text
        matches = [text for text in ids if text and after.startswith(text)]
        refuse(__package__, "end_of_turn", {"folder": self.folder, "matches": matches, "after": repr(after[:20])})
        longest = max(matches, key=len)  # "<|im_end|>" rather than "<|"
        return longest, ids[longest]

    def _read_template(self, config: Mapping[str, Any]) -> str:
        """Read the source of the chat template: the file ``chat_template.jinja``, else the entry in ``config``, the
        content of ``tokenizer_config.json``. Raises SettingsError where there is none."""
        path = self.folder / "chat_template.jinja"
        if path.is_file():
            return path.read_text(encoding="utf-8")
        template: Any = config.get("chat_template")
        if isinstance(template, list):  # several named templates
            template = {entry["name"]: entry["template"] for entry in template}.get("default")
        refuse(__package__, "template", {"folder": self.folder, "source": template})
        return template
