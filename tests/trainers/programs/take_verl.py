"""Outputs through verl's own agent loop: what a batch for its trainer holds."""

from __future__ import annotations

import asyncio
import json
import sys
from types import SimpleNamespace
from typing import Any

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, AgentLoopWorker

PROMPT, RESPONSE = 20, 24


def worker() -> Any:
    """A worker with nothing behind it: no engine, no reward loop, no teacher."""
    plain = Tokenizer(models.WordLevel({"<pad>": 0}, unk_token="<pad>"))
    made = AgentLoopWorker.__new__(AgentLoopWorker)
    made.tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>")
    made.processor = None
    made.rollout_config = SimpleNamespace(prompt_length=PROMPT, response_length=RESPONSE)
    made.reward_loop_worker_handles = None
    made.distillation_enabled = False
    made._compute_score = _nothing
    made._compute_teacher_logprobs = _nothing
    made._get_mm_processor_kwargs = lambda audios: {}
    return made


async def _nothing(*args: Any, **kwargs: Any) -> None:
    del args, kwargs


def main() -> None:
    loop = worker()
    outputs = [AgentLoopOutput(**fields) for rollout in json.load(sys.stdin) for fields in rollout["outputs"]]
    dicts = [output.as_dict() for output in outputs]
    padded = [asyncio.run(loop._agent_loop_postprocess(output, False, raw_prompt=[])) for output in outputs]
    batch = loop._postprocess(padded, {})
    said = {
        "as_dict": [
            {name: each[name].tolist() for name in ("responses", "rollout_log_probs", "rm_scores")} for each in dicts
        ],
        "batch": {name: tensor.tolist() for name, tensor in batch.batch.items()},
        "versions": [
            batch.non_tensor_batch["min_global_steps"].tolist(),
            batch.non_tensor_batch["max_global_steps"].tolist(),
        ],
    }
    print(json.dumps(said))


main()
