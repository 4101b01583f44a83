"""How the agents' small models are made, whatever they are shown: a tokenizer, updates, and a folder that is whole."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers


@dataclass(frozen=True)
class Language:
    """What a small model reads and writes."""

    template: Path
    """Its chat template."""
    vocabulary: int
    """At most so many tokens."""
    specials: tuple[str, ...]
    """The first one is padding."""
    end: str
    """Ends an answer; one of the special tokens."""
    context: int

    def tokenizer(self, texts: Iterable[str], apart: pre_tokenizers.PreTokenizer) -> Tokenizer:
        """A byte-level BPE learnt from texts; no token spans two of the pieces that `apart` cuts a text into."""
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [apart, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocabulary,
            special_tokens=list(self.specials),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        return tokenizer

    def save(self, tokenizer: Tokenizer, folder: Path, classes: Mapping[str, str]) -> None:
        """What engine, proxy and trainer read, beside the weights; `classes`: which of transformers' read it."""
        tokenizer.save(str(folder / "tokenizer.json"))
        template = self.template.read_text(encoding="utf-8")
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **classes,
            "eos_token": self.end,
            "pad_token": self.specials[0],
            "padding_side": "left",
            "model_max_length": self.context,
            "clean_up_tokenization_spaces": False,
            "chat_template": template,
        }
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


class Course:
    """One part of what a model is taught: its optimizer, and a rate that rises over 30 updates and falls over all."""

    def __init__(self, model: torch.nn.Module, rate: float, steps: int) -> None:
        """Make the optimizer; `rate` is the highest one."""
        self._model = model
        self._rate = rate
        self._steps = steps
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0, betas=(0.9, 0.98))

    def step(self, number: int, behind: int, loss: torch.Tensor) -> None:
        """One update, the `number`-th from 1; the rate has fallen by so many as are `behind`."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate * min(1.0, number / 30) * (1 - 0.8 * behind / self._steps)
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()


@contextmanager
def whole(folder: Path) -> Generator[Path]:
    """A path to write a model folder to, which becomes `folder` if nothing goes wrong."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        made = Path(place) / "model"
        yield made
        shutil.move(made, folder)
