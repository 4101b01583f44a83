"""A model in transformers, float32, on this machine's processor: the only module that knows torch.

Both packages are imported when a model is loaded, and are no dependency of Turnstile: `pip install
'turnstile-rl[audit]'` brings them.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast, final

from turnstile.errors import CallerError
from turnstile.reports.audit_images import ImageReader
from turnstile.reports.audit_run import Asked
from turnstile.reports.audit_subject import Filter, Subject
from turnstile.tokens import IdRun
from turnstile.trajectory.side_files import SideSource

CHUNK_FLOATS = 1 << 25
"""Logits that are held at once: 128 MiB."""
_SAME = 1e-4


def load_model(path: Path) -> TransformersModel:
    """The model of a folder, or of a gguf whose weights are dequantized.

    Raises: CallerError `audit_packages_missing` without torch or transformers, `audit_model_unreadable` if they
        cannot load what is there.
    """
    if not path.exists():
        raise CallerError(f"{path} is no model", "Give its folder, or a .gguf file", code="audit_model_unreadable")
    # Bars and advice of the libraries would stand among our own lines; this one is read when tqdm is imported.
    os.environ.setdefault("TQDM_DISABLE", "1")
    torch, transformers = _package("torch"), _package("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        model = _loaded(transformers, torch, path)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CallerError(
            f"transformers cannot load {path}: {first[:300]}",
            "Give a folder with config.json and weights, or a gguf of an architecture that transformers can read",
            code="audit_model_unreadable",
        ) from error
    return TransformersModel(torch, model.eval(), ImageReader(path))


def _package(name: str) -> Any:  # noqa: ANN401 - it has no types where it is not installed
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        raise CallerError(
            f"`turnstile audit` needs the package {name}",
            "Install it beside Turnstile: `pip install 'turnstile-rl[audit]'`, in the clone `pip install '.[audit]'`",
            code="audit_packages_missing",
        ) from missing


def _loaded(transformers: Any, torch: Any, path: Path) -> Any:  # noqa: ANN401 - as above
    exact = {"dtype": torch.float32, "local_files_only": True}
    if path.is_file():
        return transformers.AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, **exact)
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    sees = "vision_config" in config
    kind = transformers.AutoModelForImageTextToText if sees else transformers.AutoModelForCausalLM
    return kind.from_pretrained(str(path), **exact)


@final
class TransformersModel:
    """Runs sequences, one at a time, without padding."""

    def __init__(self, torch: Any, model: Any, images: ImageReader) -> None:  # noqa: ANN401 - torch has no types here
        """Own a model in eval mode."""
        self._torch = torch
        self._model = model
        self._images = images
        self.vocab_size = int(model.get_output_embeddings().weight.shape[0])

    def run(self, subject: Subject, token_ids: IdRun, side: SideSource) -> TransformersRun:
        """Send ids through the model, with the images of the sequence, whose bytes come from `side`.

        Raises: StoreError if they are not there; CallerError `audit_model_mismatch` for an id that the model does
            not have, or an image of which its processor makes another number of tokens.
        """
        ids = token_ids.tolist()
        if max(ids) >= self.vocab_size:
            raise CallerError(
                f"Sequence {subject.sequence_id} holds id {max(ids)}, and the model has {self.vocab_size} ids",
                "Give the model that sampled it",
                code="audit_model_mismatch",
            )
        torch = self._torch
        inputs = {"input_ids": torch.tensor([ids]), "use_cache": False}
        if subject.media:
            inputs |= self._images.inputs(subject, ids, side)
        seen: dict[str, Any] = {}

        def keep(_module: object, _arguments: object, output: Any) -> None:  # noqa: ANN401 - a model's output
            seen["hidden"] = output[0]

        hook = self._model.base_model.register_forward_hook(keep)
        try:
            with torch.inference_mode():
                last = self._model(**inputs, logits_to_keep=1).logits[0, -1]
        finally:
            hook.remove()
        hidden_TH = seen["hidden"][0]
        with torch.inference_mode():
            apart = float((self._head(hidden_TH[-1:])[0] - last).abs().max())
        # Some architectures scale or cap the logits behind the head; then the whole model has to say them.
        return TransformersRun(self, inputs, hidden_TH if apart <= _SAME else None)

    def _head(self, hidden: Any) -> Any:  # noqa: ANN401 - a tensor
        return self._model.get_output_embeddings()(hidden)

    def logits(self, inputs: dict[str, Any], hidden_TH: Any | None, rows: list[int]) -> Any:  # noqa: ANN401 - a tensor
        """float32[rows, vocabulary]: what the model says behind the tokens `rows`."""
        chosen = self._torch.tensor(rows)
        if hidden_TH is not None:
            return self._head(hidden_TH[chosen]).float()
        return self._model(**inputs, logits_to_keep=chosen).logits[0].float()

    @property
    def torch(self) -> Any:  # noqa: ANN401 - a module
        """The package."""
        return self._torch


@final
class TransformersRun:
    """One sequence that has gone through the model. Logits are made for a few rows at a time, and let go."""

    def __init__(self, model: TransformersModel, inputs: dict[str, Any], hidden_TH: Any | None) -> None:  # noqa: ANN401
        """`hidden_TH`: what stands before the output embeddings; None: the model is run again for each chunk."""
        self._model = model
        self._inputs = inputs
        self._hidden_TH = hidden_TH

    def logprobs(self, asked: list[Asked]) -> list[float]:
        """The numbers asked for; -inf where the filter or the kept set leaves the target out."""
        found: list[float] = []
        torch = self._model.torch
        for chunk in self._chunks(asked):
            with torch.inference_mode():
                logprobs_CV = self._rows(chunk)
                targets = torch.tensor([[each.target] for each in chunk])
                found += cast("list[float]", logprobs_CV.gather(1, targets)[:, 0].double().tolist())
        return found

    def ids_near(self, asked: Asked, logprob: float, most: int) -> list[int]:
        """At most so many ids whose number is nearest to `logprob`, nearest first."""
        with self._model.torch.inference_mode():
            apart_V = (self._rows([asked])[0] - logprob).abs()
            return cast("list[int]", apart_V.topk(min(most, len(apart_V)), largest=False).indices.tolist())

    def _chunks(self, asked: list[Asked]) -> Iterator[list[Asked]]:
        size = max(1, CHUNK_FLOATS // self._model.vocab_size)
        for start in range(0, len(asked), size):
            yield asked[start : start + size]

    def _rows(self, asked: list[Asked]) -> Any:  # noqa: ANN401 - a tensor
        torch = self._model.torch
        logits_CV = self._model.logits(self._inputs, self._hidden_TH, [each.row for each in asked])
        logits_CV = logits_CV / torch.tensor([[each.temperature] for each in asked], dtype=torch.float32)
        for index, each in enumerate(asked):
            if each.kept:
                logits_CV[index] = _only(torch, logits_CV[index], list(each.kept))
            elif each.filter.is_on:
                logits_CV[index] = _filtered(torch, logits_CV[index], each.filter)
        return torch.log_softmax(logits_CV, dim=-1)


def _only(torch: Any, logits_V: Any, kept: list[int]) -> Any:  # noqa: ANN401 - tensors
    left_V = torch.full_like(logits_V, -torch.inf)
    left_V[kept] = logits_V[kept]
    return left_V


def _filtered(torch: Any, logits_V: Any, cut: Filter) -> Any:  # noqa: ANN401 - tensors
    """The logits with -inf where the filter cuts: min-p, then top-k, then top-p of what is left, as vLLM does."""
    probabilities_V = torch.softmax(logits_V, dim=-1)
    left_V = logits_V.masked_fill(probabilities_V < cut.min_p * probabilities_V.max(), -torch.inf)
    if 0 < cut.top_k < len(left_V):
        left_V = left_V.masked_fill(left_V < left_V.topk(cut.top_k).values[-1], -torch.inf)
    ordered_V, order_V = torch.softmax(left_V, dim=-1).sort(descending=True)
    # The token with which the sum reaches top_p is still in.
    beyond_V = ordered_V.cumsum(0) - ordered_V >= cut.top_p
    beyond_V[0] = False
    return left_V.masked_fill(torch.zeros_like(beyond_V).scatter(0, order_V, beyond_V), -torch.inf)
