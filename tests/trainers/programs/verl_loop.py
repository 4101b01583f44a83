"""Agents of verl's agent loop on a live Turnstile: its worker makes the loop from a file, runs it and pads what came.

Runs inside the environment of verl. In: {"url": the server, "folder": with a tokenizer, to write into}.
Out: the batch for the trainer, the outputs of each run, and what a run without an answer gave.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
from omegaconf import OmegaConf
from transformers import PreTrainedTokenizerFast
from verl.experimental.agent_loop import agent_loop as verl
from verl.utils.dataset.rl_dataset import RLHFDataset

from turnstile.integrations.verl import agent_loop

PROMPT, RESPONSE = 64, 64


def talk(rollout: Any, prompt: Any) -> float:
    """Two turns, or none."""
    messages = []
    for follow in prompt["raw_prompt"]:
        messages.append({"role": "user", "content": follow})
        answer = httpx.post(
            f"{rollout.openai_base_url}/chat/completions",
            json={"model": "m", "messages": messages, "temperature": prompt["sampling_params"]["temperature"]},
            headers={"authorization": f"Bearer {rollout.agent_key}"},
            timeout=60,
            trust_env=False,
        )
        messages.append(answer.json()["choices"][0]["message"])
    return 1.0 if messages else 0.0


def worker(said: dict[str, str]) -> Any:
    """A worker without engine, reward loop and teacher, whose loops come from a file as verl reads it."""
    globals()["Talk"] = agent_loop(said["url"], talk, workers=2)
    path = Path(said["folder"]) / "agents.yaml"
    path.write_text("- name: talk\n  _target_: __main__.Talk\n", encoding="utf-8")
    for each in OmegaConf.load(path):
        verl._agent_loop_registry[each.name] = each
    made = verl.AgentLoopWorker.__new__(verl.AgentLoopWorker)
    rollout = {"prompt_length": PROMPT, "response_length": RESPONSE}
    made.config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": {}})
    made.rollout_config = SimpleNamespace(**rollout)
    made.llm_client = made.processor = made.reward_loop_worker_handles = made.hf_model_type = None
    made.tokenizer = PreTrainedTokenizerFast.from_pretrained(said["folder"], pad_token="<|im_end|>")
    made.dataset_cls = RLHFDataset
    made.tools = []
    made.distillation_enabled = False
    made._compute_score = made._compute_teacher_logprobs = _nothing
    made._get_mm_processor_kwargs = lambda audios: {}
    return made


async def _nothing(*args: Any, **kwargs: Any) -> None:
    del args, kwargs


async def run(made: Any) -> list[Any]:
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 2, "validate": False}
    asked = [
        made._run_agent_loop(
            {"temperature": 1.0},
            trajectory,
            agent_name="talk",
            trace=False,
            raw_prompt=["Hi", "Bye"],
            uid="u",
            session_id=index,
        )
        for index in range(2)
    ]
    return [await each for each in asked]


def main() -> None:
    said = json.loads(sys.stdin.readline())
    made = worker(said)
    padded = asyncio.run(run(made))
    batch = made._postprocess(padded, {})
    loop = verl.hydra.utils.instantiate(
        verl._agent_loop_registry["talk"],
        trainer_config=verl.DictConfigWrap(made.config),
        server_manager=None,
        tokenizer=made.tokenizer,
        processor=None,
        dataset_cls=RLHFDataset,
        data_config=verl.DictConfigWrap(made.config.data),
    )
    silent = asyncio.run(loop.run({"temperature": 1.0}, raw_prompt=[], uid="silent", session_id=0))
    names = ("prompts", "responses", "response_mask", "rollout_log_probs", "rm_scores")
    print(json.dumps({"batch": {name: batch.batch[name].tolist() for name in names}, "silent": silent}))


main()
