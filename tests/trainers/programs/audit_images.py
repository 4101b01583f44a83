"""Audits rollouts with images of a random tiny Qwen2.5-VL, right and damaged.

Runs inside the environment of TRL. In: {"folder": path}. Out: {case: SequenceAudit, or the code of the refusal}.
The ids, pixels and numbers of the record are made with transformers alone, not with the audit's code.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec.structs import replace
from PIL import Image
from transformers import AutoImageProcessor, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from turnstile.errors import TurnstileError
from turnstile.reports.audit import audit, choose
from turnstile.reports.audit_model import load_model
from turnstile.tokens import IdRun, LogprobRun
from turnstile.trajectory.files import write
from turnstile.trajectory.format import (
    CallInfo,
    HeadInfo,
    MediaEntry,
    Rollout,
    SamplingInfo,
    Sequence,
    SequenceSegment,
    TokenCounts,
    UsageInfo,
)

NOW = datetime(2026, 12, 1, tzinfo=UTC)
START, END, PAD, VIDEO = 5, 6, 7, 8
ANSWER = 24
PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "size": {"shortest_edge": 3136, "longest_edge": 1003520},
    "min_pixels": 3136,
    "max_pixels": 1003520,
}


def checkpoint(folder: Path) -> Any:
    torch.manual_seed(3)
    text = {
        "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 2048,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]},
        "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.15,
    }  # fmt: skip
    vision = {
        "depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2, "in_channels": 3, "patch_size": 14,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 112, "out_hidden_size": 64,
        "fullatt_block_indexes": [1], "tokens_per_second": 2,
    }  # fmt: skip
    config = Qwen2_5_VLConfig(
        text_config=text, vision_config=vision, image_token_id=PAD, video_token_id=VIDEO,
        vision_start_token_id=START, vision_end_token_id=END, initializer_range=0.15, tie_word_embeddings=False,
    )  # fmt: skip
    model = Qwen2_5_VLForConditionalGeneration(config).to(torch.float32).eval()
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR), encoding="utf-8")
    return model


def picture(wide: int, high: int, seed: int) -> bytes:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (high, wide, 3), generator=generator, dtype=torch.uint8)
    held = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(held, "PNG")
    return held.getvalue()


def main() -> None:
    folder = Path(json.loads(sys.stdin.readline())["folder"])
    model = checkpoint(folder / "model")
    processor = AutoImageProcessor.from_pretrained(folder / "model")
    pictures = [picture(112, 84, 1), picture(56, 140, 2)]
    seen = [processor(images=[Image.open(io.BytesIO(each))], return_tensors="pt") for each in pictures]
    counts = [int(each["image_grid_thw"].prod()) // 4 for each in seen]
    ids, media = [1, 40, 41, 42], []
    for data, count in zip(pictures, counts, strict=True):
        media.append(
            MediaEntry(
                sha256=hashlib.sha256(data).hexdigest(), mime="image/png", kind="image", offset=len(ids) + 1,
                length=count, num_tokens=count, placeholder_id=PAD,
            )
        )  # fmt: skip
        ids += [START, *[PAD] * count, END, 50, 51]
    images = {
        "pixel_values": torch.cat([each["pixel_values"] for each in seen]),
        "image_grid_thw": torch.cat([each["image_grid_thw"] for each in seen]),
    }
    prompt = len(ids)
    for _ in range(ANSWER):
        with torch.inference_mode():
            logits = model(**inputs(ids), **images).logits[0, -1]
            logits[[START, END, PAD, VIDEO]] = -torch.inf
            ids.append(int(torch.multinomial(torch.softmax(logits, -1), 1)))
    with torch.inference_mode():
        logprobs = torch.log_softmax(model(**inputs(ids), **images).logits[0].float(), -1)
    numbers = [float(logprobs[at - 1, ids[at]]) for at in range(prompt, len(ids))]
    right = rollout(ids, prompt, numbers, tuple(media))
    spoilt = {
        "right": right,
        "images exchanged": with_media(
            right, replace(media[0], sha256=hashlib.sha256(picture(112, 84, 9)).hexdigest())
        ),
        "another number of tokens": with_media(right, replace(media[0], num_tokens=media[0].num_tokens + 1)),
        "bytes missing": with_media(right, replace(media[0], sha256="0" * 64)),
    }
    print(msgspec.json.encode({name: told(folder, each, name) for name, each in spoilt.items()}).decode())


def inputs(ids: list[int]) -> dict[str, Any]:
    return {"input_ids": torch.tensor([ids]), "mm_token_type_ids": torch.tensor([[int(each == PAD) for each in ids]])}


def rollout(ids: list[int], prompt: int, numbers: list[float], media: tuple[MediaEntry, ...]) -> Rollout:
    call = CallInfo(
        call_id="c0", history="root", kind="agent", dialect="chat", choice_index=0, head=0, sampling=0, sequence=0,
        started_at=NOW, finish="length", usage=UsageInfo(prompt_tokens=prompt, completion_tokens=ANSWER),
        prompt_sha256=IdRun.of(ids[:prompt]).sha256(), completion_sha256=IdRun.of(ids[prompt:]).sha256(),
        logprobs_mode="raw", logprobs_temperature=1.0, complete=True, incomplete_reasons=(),
    )  # fmt: skip
    sequence = Sequence(
        sequence_id="r/0", head=0, leaf_call=0, token_ids=IdRun.of(ids), prompt_length=prompt,
        segments=(
            SequenceSegment(start=0, end=prompt, kind="prompt"),
            SequenceSegment(start=prompt, end=len(ids), kind="sampled", call=0, trainable=True),
        ),
        logprobs=LogprobRun.of(numbers), complete=True, incomplete_reasons=(), media=media, arrays={}, messages=(),
    )  # fmt: skip
    head = HeadInfo(model="m", engine="e", tokenizer_sha256="0" * 64, vocab_size=512, template_kwargs={})
    counts = TokenCounts(sampled=ANSWER, trainable=ANSWER, masked={}, discarded={})
    return Rollout(
        rollout_id="r", attempt=1, created_at=NOW, status="completed", trainable=True, mask_reasons=(), rewards={},
        metrics={}, heads=(head,), samplings=(SamplingInfo(temperature=1.0),), calls=(call,), sequences=(sequence,),
        messages=(), tools=(), token_counts=counts, extra={},
    )  # fmt: skip


def with_media(right: Rollout, first: MediaEntry) -> Rollout:
    (sequence,) = right.sequences
    return replace(right, sequences=(replace(sequence, media=(first, *sequence.media[1:])),))


def told(folder: Path, record: Rollout, name: str) -> object:
    path = folder / f"{name}.jsonl"
    write(path, [record])
    for data in (picture(112, 84, 1), picture(56, 140, 2), picture(112, 84, 9)):
        sha256 = hashlib.sha256(data).hexdigest()
        beside = folder / f"{name}.jsonl.media" / sha256[:2] / sha256
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(data)
    try:
        return next(audit(path, load_model(folder / "model"), choose(path)))
    except TurnstileError as refused:
        return refused.code


main()
