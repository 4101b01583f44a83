"""An engine for training: token ids in; ids, log-probabilities and the version of the weights out; new weights at once.

    python examples/rl/engine/serve.py CHECKPOINT [--port 0] [--device cuda --dtype bfloat16]

CHECKPOINT is a folder that `save_pretrained` wrote, with its `tokenizer.json`, and for a model that sees with its
`preprocessor_config.json`. Prints the address as its first line. The wire is described in
docs/reference/engine-wire.md; needs torch, transformers, aiohttp, and pillow for images.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import random
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import torch
from aiohttp import web
from images import Expanded, Eye, PicturesRefused
from model import Loading, TokenModel
from sampling import Sampling
from scheduler import Broken, Drawn, Job, Pace, Scheduler, Update
from weights import WeightsRefused, read_weights
from wire import PROTOCOL, Asked, Limits, Refused, asked, event, ids_sha256, room

BODY_LIMIT_BYTES = 256 * 1024 * 1024
HONOURS = ("temperature", "top_p", "seed", "max_tokens", "stop_ids", "banned_ids", "logit_bias")
log = logging.getLogger("engine")


class Server:
    """The routes."""

    def __init__(self, model: TokenModel, eye: Eye | None, name: str, arguments: argparse.Namespace) -> None:
        self._model = model
        self._eye = eye
        self._name = name
        self._event_tokens: int = arguments.event_tokens
        self._key: str = arguments.api_key
        self._limits = Limits(model.vocab_size, model.context_length, model.stop_ids)
        self._pace = Pace(arguments.gather_ms / 1000, arguments.concurrency, prefix_tokens=arguments.prefix_tokens)
        self._loop = asyncio.get_running_loop()
        self._scheduler = Scheduler(model, arguments.version, self._pace, self._heard)
        self._updating = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncGenerator[str]:
        """The base URL, for as long as the block runs; port 0 = any free one."""
        app = web.Application(client_max_size=BODY_LIMIT_BYTES, middlewares=[self._guarded])
        app.router.add_get("/health", self._health)
        app.router.add_get("/info", self._info)
        app.router.add_post("/generate", self._generate)
        app.router.add_post("/update_weights", self._update_weights)
        # A client that hangs up cancels its handler, which gives its request up.
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, host, port).start()
        self._scheduler.start()
        try:
            yield f"http://{host}:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()
            await asyncio.to_thread(self._scheduler.stop)

    def _heard(self, news: list[tuple[Job, Drawn | Broken]]) -> None:
        """From the scheduler's thread: one hand-over for the tokens of all requests."""

        def tell() -> None:
            for job, said in news:
                job.told(said)

        self._loop.call_soon_threadsafe(tell)

    @web.middleware
    async def _guarded(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if self._key and request.path != "/health" and request.headers.get("authorization") != f"Bearer {self._key}":
            return web.json_response(Refused("the key is missing or wrong", "unauthorized").body, status=401)
        try:
            return await handler(request)
        except Refused as refused:
            return web.json_response(refused.body, status=refused.status)

    async def _health(self, _request: web.Request) -> web.Response:
        running, waiting = self._scheduler.load
        return web.json_response({"status": "ok", "running": running, "waiting": waiting})

    async def _info(self, _request: web.Request) -> web.Response:
        model = self._model
        return web.json_response(
            {
                "protocol": PROTOCOL,
                "engine": "turnstile-example",
                "version": f"torch {torch.__version__}",
                "model": self._name,
                "weight_version": self._scheduler.version,
                "model_sha256": model.weights_sha256,
                "tokenizer_sha256": model.tokenizer_sha256,
                "vocab_size": model.vocab_size,
                "context_length": model.context_length,
                "concurrency": self._pace.most,
                "stop_ids": model.stop_ids,
                "banned_ids": model.banned_ids,
                "honours": HONOURS,
                "logprobs_mode": "temperature",
                "prompt_echo": "sha256",
                "images": None if self._eye is None else self._eye.facts,
                "dtype": str(model.model.dtype).removeprefix("torch."),
                "device": str(model.model.device),
                "sampled": self._scheduler.sampled,
            }
        )

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        ask = asked(await request.read(), self._limits)
        prompt = await self._expanded(ask)
        arrived: asyncio.Queue[Drawn | Broken] = asyncio.Queue()
        sampling = ask.sampling
        if sampling.seed is None:
            sampling = Sampling(**{**vars(sampling), "seed": random.SystemRandom().getrandbits(63)})
        limit = room(len(prompt.ids), ask.max_tokens, self._limits)
        job = Job(prompt, sampling, ask.stop_ids, limit, arrived.put_nowait)
        self._scheduler.submit(job)
        try:
            if ask.is_stream:
                return await self._streamed(request, job, arrived)
            return await self._whole(job, arrived)
        finally:
            job.is_given_up = True

    async def _expanded(self, ask: Asked) -> Expanded:
        if self._eye is None:
            if ask.images:
                raise Refused("`images`: the model that is served is shown none")
            return Expanded(ask.input_ids, [], None)
        try:
            return await asyncio.to_thread(self._eye.expanded, ask.input_ids, ask.images)
        except PicturesRefused as problem:
            raise Refused(f"`images`: {problem}", "images_refused") from problem

    async def _streamed(
        self, request: web.Request, job: Job, arrived: asyncio.Queue[Drawn | Broken]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event(_head(job)))
        async for piece in self._pieces(arrived):
            await response.write(event(piece))
        return response

    async def _whole(self, job: Job, arrived: asyncio.Queue[Drawn | Broken]) -> web.Response:
        pieces = [piece async for piece in self._pieces(arrived)]
        if "error" in pieces[-1]:
            return web.json_response(pieces[-1], status=500)
        return web.json_response({**_head(job), **_joined(pieces)})

    async def _pieces(self, arrived: asyncio.Queue[Drawn | Broken]) -> AsyncGenerator[dict[str, Any]]:
        """An answer in events: tokens of one version of the weights each, the last one with how it ended."""
        tokens: list[Drawn] = []
        count = 0
        while True:
            said = await arrived.get()
            if isinstance(said, Broken):
                yield {"error": {"code": "engine_failed", "message": said.problem}}
                return
            if tokens and tokens[-1].version != said.version:
                yield _piece(tokens)
                tokens = []
            tokens.append(said)
            count += 1
            if said.finish:
                yield {**_piece(tokens), "finish_reason": said.finish, "completion_tokens": count}
                return
            # The first token leaves at once.
            if count == 1 or len(tokens) >= self._event_tokens:
                yield _piece(tokens)
                tokens = []

    async def _update_weights(self, request: web.Request) -> web.Response:
        """Read and check the file beside the running model, then put it in between two tokens."""
        path, version = _update_asked(await request.read())
        async with self._updating:
            began = time.monotonic()
            try:
                tensors = await asyncio.to_thread(read_weights, self._model.model, path)
            except WeightsRefused as refused:
                raise Refused(str(refused), "weights_refused") from refused
            done = asyncio.Event()
            self._scheduler.submit(Update(tensors, version, lambda: self._loop.call_soon_threadsafe(done.set)))
            await done.wait()
            took_ms = (time.monotonic() - began) * 1000
        log.info("weights %s from %s in %.0f ms", version, path, took_ms)
        found = {"weight_version": version, "model_sha256": self._model.weights_sha256, "took_ms": round(took_ms, 1)}
        return web.json_response(found)


def _update_asked(body: bytes) -> tuple[Path, str]:
    try:
        fields = json.loads(body)
        path, version = fields["path"], fields["version"]
    except (ValueError, TypeError, KeyError) as problem:
        raise Refused("give `path` and `version` as a JSON object") from problem
    if not isinstance(path, str) or isinstance(version, bool) or not isinstance(version, str | int):
        raise Refused("`path` is a text, and `version` a number or a text")
    return Path(path), str(version)


def _head(job: Job) -> dict[str, Any]:
    """What is said of a request before its first token."""
    ids = job.prompt.ids
    head: dict[str, Any] = {
        "prompt_tokens": len(ids),
        "prompt_sha256": ids_sha256(ids),
        "logprobs_mode": job.sampling.logprobs_mode,
        "logprobs_temperature": job.sampling.divisor,
    }
    if job.prompt.ranges:
        head |= {"prompt_ids": ids, "image_ranges": job.prompt.ranges}
    return head


def _piece(tokens: list[Drawn]) -> dict[str, Any]:
    return {
        "output_ids": [each.token_id for each in tokens],
        "logprobs": [each.logprob for each in tokens],
        "weight_version": tokens[0].version,
    }


def _joined(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    """An answer that is not streamed."""
    spans: list[dict[str, Any]] = []
    ids: list[int] = []
    for piece in pieces:
        start, version = len(ids), piece["weight_version"]
        ids += piece["output_ids"]
        if spans and spans[-1]["version"] == version:
            spans[-1]["end"] = len(ids)
        else:
            spans.append({"version": version, "start": start, "end": len(ids)})
    return {
        "output_ids": ids,
        "logprobs": [each for piece in pieces for each in piece["logprobs"]],
        "weight_versions": spans,
        "finish_reason": pieces[-1]["finish_reason"],
        "completion_tokens": len(ids),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--api-key", default="", help="asked for in `authorization: Bearer KEY`; empty: none")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, mps")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--context-length", type=int, default=None, help="tokens; the model's own without it")
    parser.add_argument("--ban", action="append", default=[], metavar="TOKEN", help="never sampled; may be repeated")
    parser.add_argument("--version", default="0", help="what the first weights are called")
    parser.add_argument("--name", default="", help="of the model; the folder's without it")
    parser.add_argument("--concurrency", type=int, default=64, help="sequences at once")
    parser.add_argument("--gather-ms", type=float, default=15, help="an idle engine waits so long for one more request")
    parser.add_argument(
        "--prefix-tokens", type=int, default=65536, help="tokens whose keys and values are kept; 0: none"
    )
    parser.add_argument("--event-tokens", type=int, default=1, help="tokens in one event of a stream, behind the first")
    parser.add_argument("--threads", type=int, default=0, help="of torch, on a CPU; 0: its own choice")
    return parser.parse_args()


async def _serve(arguments: argparse.Namespace) -> None:
    loading = Loading(
        arguments.checkpoint, arguments.device, arguments.dtype, arguments.context_length, tuple(arguments.ban)
    )
    model = TokenModel.load(loading)
    eye = Eye.of(arguments.checkpoint, model.config)
    server = Server(model, eye, arguments.name or arguments.checkpoint.resolve().name, arguments)
    ended = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, ended.set)
    async with server.serving(arguments.host, arguments.port) as url:
        print(url, flush=True)
        await ended.wait()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    arguments = _arguments()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    asyncio.run(_serve(arguments))


if __name__ == "__main__":
    main()
