"""What agents talk to: a dialect's paths under a rollout's base URL.

A handler only follows a call; the call runs as a task of the app. So a client that hangs up costs at most its own
answer, and everything about streaming is decided by whether the encoder hands out bytes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message as AsgiMessage
from starlette.types import Receive, Send

from turnstile.conversation import Answer, Call, answer_id
from turnstile.engines.wire import TRACE_HEADERS
from turnstile.errors import CallerError, StoreError, TurnstileError
from turnstile.exchange.failures import Progress, failure
from turnstile.exchange.inflight import Flight, Follower
from turnstile.exchange.repeats import Found, Repeat
from turnstile.exchange.rollouts import OpenRollout, Rollouts
from turnstile.exchange.run import run
from turnstile.exchange.threads import told_in_full
from turnstile.exchange.world import World
from turnstile.generation import history_header
from turnstile.history.digest import body_digest
from turnstile.journal import AnswerUndelivered
from turnstile.protocols.base import AnswerHead, Decoded, Dialect, Encoder, Severed, WireRequest, request_id
from turnstile.protocols.json_body import snippet
from turnstile.protocols.keepable import check_keepable
from turnstile.protocols.models import check_model
from turnstile.protocols.quirks import apply
from turnstile.protocols.sizes import CallLimits, check_length, check_sizes
from turnstile.reasons import DiscardReason
from turnstile.server.apart import apart
from turnstile.server.remote_images import RemoteImages
from turnstile.server.retry_after import retry_after
from turnstile.server.sealing import in_full
from turnstile.server.severing import StreamSevered
from turnstile.server.visit import Reception, Visit

log = logging.getLogger("turnstile.calls")


class Limits(msgspec.Struct, frozen=True):
    """What a client may ask of a handler."""

    max_body_bytes: int
    keep_alive_s: float
    grace_s: float
    finish_patience_s: float
    remote: RemoteImages = RemoteImages()
    """What of images by their address is fetched."""
    told: Callable[[TurnstileError], TurnstileError] = in_full
    """What an agent is told of an error."""
    call: CallLimits = CallLimits()
    check_call: Callable[[], None] = lambda: None
    """Raises: TurnstileError while no call may begin."""


class Desk:
    """Starts calls and answers those who wait for them."""

    def __init__(
        self, world: World, rollouts: Rollouts, tasks: asyncio.TaskGroup, limits: Limits, reception: Reception
    ) -> None:
        self.world = world
        self.rollouts = rollouts
        self.reception = reception
        self.told = limits.told
        """What agents are told of errors."""
        self._tasks = tasks
        self._limits = limits

    async def serve(self, request: Request, line: Line, rollout: OpenRollout, path: str) -> None:
        """Answer one request of an agent whose rollout is known and whose key was checked.

        Raises: StreamSevered when all is done and the connection is to be cut.
        """
        visit = line.visit
        visit.enters(rollout)
        began = self.world.now()
        try:
            decoded, digest, found = await self._take(request, visit, rollout, path)
        except TurnstileError as error:
            await line.refuse(await self._refused(rollout, visit.dialect, error, began))
            return
        # The call's task, and whatever it starts, has it from here.
        TRACE_HEADERS.set(visit.trace.headers)
        flight = found.flight or self._launch(rollout, decoded.call, digest)
        visit.boards(flight, found.how)
        head = AnswerHead(_answer_id(rollout, flight), int(began.timestamp()), decoded.call.model)
        line.request_id = request_id(head)
        encoder = decoded.answer_with(head)
        follower = flight.join()
        async with asyncio.TaskGroup() as hands:
            watcher = hands.create_task(self._leave_on_hang_up(request.receive, flight, follower))
            has_answer = await self._attend(rollout, visit, follower, line, encoder)
            is_told = line.ended and not follower.left
            watcher.cancel()
        follower.leave()
        visit.is_over = is_told or line.severed
        await self._settle(rollout, flight, delivered=is_told and has_answer)
        if line.severed:
            raise StreamSevered

    async def _take(
        self, request: Request, visit: Visit, rollout: OpenRollout, path: str
    ) -> tuple[Decoded, str, Found]:
        body = await read_body(request, self._limits.max_body_bytes)
        visit.was_read()
        self._limits.check_call()
        wire = WireRequest(body, dict(request.headers), path, dict(request.query_params))
        decoded = await apart(body, lambda: self._decoded(visit.dialect, wire))
        await self._refuse_closed(rollout)
        call = apply(self.world.quirks, decoded.call, request.headers)
        call = await self._limits.remote.fetched(told_in_full(rollout.forest, call), rollout.forest, self.world.gallery)
        digest = await apart(body, lambda: body_digest(call))
        # It may have been closed while that was awaited.
        await self._refuse_closed(rollout)
        return msgspec.structs.replace(decoded, call=call), digest, rollout.repeats.find(call, digest)

    def _decoded(self, dialect: Dialect, wire: WireRequest) -> Decoded:
        """What a request says, if it is no more than it may; safe in a thread."""
        limits = self._limits.call
        check_length(wire.body, limits)
        decoded = dialect.decode(wire)
        check_model((self.world.served.model,), decoded.call.model)
        check_sizes(decoded.call, limits)
        check_keepable(decoded.call, limits.nesting)
        return decoded

    async def _refuse_closed(self, rollout: OpenRollout) -> None:
        if rollout.closing:
            raise await self.rollouts.reject(rollout, "rollout_closed")

    def _launch(self, rollout: OpenRollout, call: Call, digest: str) -> Flight:
        flight = rollout.take_off(call, digest)
        flight.task = self._tasks.create_task(self._run(rollout, call, flight))
        return flight

    async def _note_repeat(self, rollout: OpenRollout, flight: Flight, how: Repeat) -> None:
        """Record that a retry is given an earlier call's answer; it can refer to that call once the journal has it."""
        if how is not Repeat.FRESH and await flight.has_begun():
            await self.rollouts.joined(rollout, flight, how)

    async def _run(self, rollout: OpenRollout, call: Call, flight: Flight) -> None:
        """Run a call as a task of the app: whatever escapes it ends here, as an error of this one call."""
        progress = Progress(rollout.opened.rollout_id, call.dialect)
        try:
            await run(self.world, rollout, call, flight, progress)
            await self._note_undelivered(rollout, flight)
        except Exception as bug:
            log.exception("call failed inside Turnstile", extra={"rollout_id": rollout.opened.rollout_id})
            await self._note_bug(rollout, flight, bug, progress)
        finally:
            # Nobody may wait for ever, also where a second cancellation cut the record of the first one short.
            flight.land(TurnstileError("The server is stopping", "Send it again", code="cancelled", status=503))

    async def _note_bug(self, rollout: OpenRollout, flight: Flight, bug: Exception, progress: Progress) -> None:
        problem = f"Turnstile failed inside: {type(bug).__name__}"
        error = bug if isinstance(bug, TurnstileError) else TurnstileError(problem, "Please report it with the log")
        state = rollout.forest.calls.get(flight.call_id)
        progress.call_id = flight.call_id if state is not None else ""
        record, _ = failure(error, progress, self.world.now())
        if state is None or state.is_open:
            await rollout.keep_at_last(record)
        flight.land(error)
        rollout.repeats.failed(flight)

    async def _refused(
        self, rollout: OpenRollout, dialect: Dialect, error: TurnstileError, failed_at: datetime
    ) -> TurnstileError:
        """Record a refusal; the error to tell, which is the journal's own where that cannot be written."""
        if error.code in ("rollout_closed", "disk_low") or not rollout.counts_refusal():
            return error
        record, _ = failure(error, Progress(rollout.opened.rollout_id, dialect.name), failed_at)
        try:
            await rollout.keep(record)
        except StoreError as unwritable:
            return unwritable
        return error

    async def _attend(
        self, rollout: OpenRollout, visit: Visit, follower: Follower, line: Line, encoder: Encoder
    ) -> bool:
        """Tell a client what comes of its flight; False if it was refused, since that could not be recorded."""
        assert visit.flight is not None
        try:
            await self._note_repeat(rollout, visit.flight, visit.how)
        except StoreError as error:
            await line.refuse(error, visit.flight)
            return False
        await self._follow(visit.flight, follower, line, encoder)
        return True

    async def _follow(self, flight: Flight, follower: Follower, line: Line, encoder: Encoder) -> None:
        async for delta in follower.deltas(self._limits.keep_alive_s):
            # A stream that has begun can only be told of an overload in a way that clients do not try again on.
            if delta is None and not flight.has_place:
                continue
            piece = encoder.keep_alive() if delta is None else encoder.feed(delta)
            if piece:
                await line.write(flight, encoder.media_type, piece)
        match flight.outcome:
            case Answer() as answer:
                await line.end(flight, encoder.media_type, encoder.finish(answer))
            case TurnstileError() as error if line.open:
                await line.break_off(flight, encoder.media_type, encoder.fail(line.told(error)))
            case TurnstileError() as error:
                await line.refuse(error, flight)
            case None:
                pass

    async def _settle(self, rollout: OpenRollout, flight: Flight, *, delivered: bool) -> None:
        """Remember whether the answer arrived; give up a call that nobody waits for, after a grace."""
        if delivered and isinstance(flight.outcome, Answer):
            rollout.repeats.delivered(flight)
        else:
            self._unless_awaited(flight)
            await self._note_undelivered(rollout, flight)

    async def _note_undelivered(self, rollout: OpenRollout, flight: Flight) -> None:
        """An answer that nobody took is in the journal, and is marked so."""
        is_untaken = isinstance(flight.outcome, Answer) and flight.waiting == 0 and not flight.delivered
        if is_untaken and rollout.repeats.lost(flight):
            rollout_id = rollout.opened.rollout_id
            await rollout.keep_at_last(
                AnswerUndelivered(rollout_id, flight.call_id, self.world.now(), DiscardReason.CLIENT_GONE)
            )

    async def _leave_on_hang_up(self, receive: Receive, flight: Flight, follower: Follower) -> None:
        """Its client hangs up; `_settle` follows, but for a call that waits for its place only once that has begun."""
        while (await receive())["type"] != "http.disconnect":
            pass
        follower.leave()
        if not flight.has_place:
            self._unless_awaited(flight)

    def _unless_awaited(self, flight: Flight) -> None:
        if flight.outcome is None and flight.waiting == 0:
            self._tasks.create_task(self._give_up(flight))

    async def _give_up(self, flight: Flight) -> None:
        joins = flight.joins
        # The grace is for what was sampled, and a call that waits for its place has sampled nothing.
        await asyncio.sleep(self._limits.grace_s if flight.has_place else 0)
        # Whoever came meanwhile and left again has a grace of its own.
        is_left = flight.joins == joins and flight.waiting == 0
        if is_left and flight.outcome is None and not flight.is_given_up and flight.task is not None:
            flight.task.cancel()


def _answer_id(rollout: OpenRollout, flight: Flight) -> str:
    return answer_id(rollout.opened.rollout_id, rollout.opened.attempt, flight.call_id)


BODY_PATIENCE_S = 60.0
"""How long a client may pause in mid-request."""


async def read_body(request: Request, limit: int) -> bytes:
    """A request's body, read no further than a limit in bytes.

    Raises: CallerError 413 if it is longer; `body_compressed` if it is compressed; `client_gone` if it does not come
        whole; 408 if nothing of it comes for `BODY_PATIENCE_S`.
    """
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise CallerError(
            f"The request body is compressed as `{snippet(encoding)}`",
            "Switch the compression of requests off in the client",
            code="body_compressed",
        )
    too_long = CallerError(
        f"The request body is longer than {limit} bytes",
        "Send less, or raise --max-body-mb",
        code="body_too_large",
        status=413,
    )
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise too_long
    pieces: list[bytes] = []
    length = 0
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(BODY_PATIENCE_S) as patience:
            async for piece in request.stream():
                patience.reschedule(loop.time() + BODY_PATIENCE_S)
                length += len(piece)
                if length > limit:
                    raise too_long
                pieces.append(piece)
    except ClientDisconnect:
        raise CallerError(
            f"The client left after {length} bytes of its request", "Send it again", code="client_gone"
        ) from None
    except TimeoutError:
        raise CallerError(
            f"Nothing of the request came for {BODY_PATIENCE_S:g} s, after {length} bytes",
            "Send it again",
            code="request_too_slow",
            status=408,
        ) from None
    return b"".join(pieces)


_LAST_WORDS_S = 0.1
"""How long a connection outlives its last words: clients drop what they have not read when it breaks."""


class Line:
    """The socket's side of one answer: headers leave with the first bytes."""

    def __init__(self, send: Send, visit: Visit, told: Callable[[TurnstileError], TurnstileError]) -> None:
        self._send = send
        self.visit = visit
        """What happens to the request is noted there."""
        self.told = told
        """What the client is told of an error."""
        self.open = False
        """Whether headers have left."""
        self.ended = False
        """Whether the last byte has left."""
        self.severed = False
        """Whether the connection is to be cut: the body has no end."""
        self.request_id = ""
        """Empty: one that names no answer."""

    async def write(self, flight: Flight, media_type: str, piece: bytes) -> None:
        """Send bytes of an answer that goes on."""
        await self._start(200, media_type, _headers(flight))
        await self._put({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self, flight: Flight, media_type: str, piece: bytes) -> None:
        """Send the last bytes of an answer."""
        await self._start(200, media_type, _headers(flight))
        await self._put({"type": "http.response.body", "body": piece, "more_body": False})
        self.ended = True

    async def break_off(self, flight: Flight, media_type: str, ending: bytes | Severed) -> None:
        """End an answer that failed, as its dialect does: with an error event, or by no end at all."""
        if isinstance(ending, Severed):
            await self.write(flight, media_type, ending.last_words)
            await asyncio.sleep(_LAST_WORDS_S)
            self.severed = True
        else:
            await self.end(flight, media_type, ending)

    async def refuse(self, error: TurnstileError, flight: Flight | None = None) -> None:
        """Answer with an error, before anything else has left."""
        self.visit.refused = error.code
        headers = {**(_headers(flight) if flight else {}), **retry_after(error)}
        await self._start(error.status, "application/json", headers)
        body = self.visit.dialect.refuse(self.told(error))
        await self._put({"type": "http.response.body", "body": body, "more_body": False})
        self.ended = self.visit.is_over = True

    async def _start(self, status: int, media_type: str, more: Mapping[str, str]) -> None:
        if self.open:
            return
        headers = {"content-type": media_type, **more}
        headers |= request_headers(self.visit.rollout_id, self.request_id)
        packed = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self._put({"type": "http.response.start", "status": status, "headers": packed})
        self.visit.status = status
        self.open = True

    async def _put(self, message: AsgiMessage) -> None:
        await self._send(message)


def request_headers(rollout_id: str, named: str = "") -> dict[str, str]:
    """What every answer to an agent says: the rollout, if it is known, and the request's id.

    The id is there as Anthropic's clients look for it and as OpenAI's do; a fresh one if none is given.
    """
    request = named or f"req_{secrets.token_hex(12)}"
    rollout = {"x-turnstile-rollout": rollout_id} if rollout_id else {}
    return {**rollout, "request-id": request, "x-request-id": request}


def _headers(flight: Flight) -> dict[str, str]:
    headers = {"x-turnstile-call": flight.call_id, "cache-control": "no-cache"}
    if flight.history is not None:
        headers["x-turnstile-history"] = history_header(flight.history)
    return headers
