"""Keys and values: of the sequences that run, in one block without copies between tokens, and of prefixes seen before.

All running sequences end in the same column, so that each new token is written behind them and nothing is moved. One
that leaves is overwritten by the last one. Prefixes are found by a chain of hashes over blocks of tokens.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from transformers import DynamicCache, DynamicLayer, PreTrainedConfig

BLOCK = 16
"""Prefixes are shared in whole blocks of so many tokens."""
_SPARE_COLUMNS = 64
_Pairs = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each layer, [B, heads, L, size]."""


class _Layer(DynamicLayer):
    """A layer with room for more rows and columns than are in use."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self.blocks = [keys, values]
        self.rows, self.used = keys.shape[0], keys.shape[2]
        self._view()

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: object, **_kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new columns behind those in use. transformers calls this once a layer and token."""
        start, self.used = self.used, self.used + key_states.shape[2]
        if self.used > self.blocks[0].shape[2]:
            self.blocks = [_wider(block, self.used + _SPARE_COLUMNS) for block in self.blocks]
        for block, states in zip(self.blocks, (key_states, value_states), strict=True):
            block[: self.rows, :, start : self.used] = states
        self._view()
        return self.keys, self.values

    def move(self, source: int, target: int) -> None:
        for block in self.blocks:
            block[target, :, : self.used] = block[source, :, : self.used]

    def shrink(self, rows: int) -> None:
        self.rows = rows
        self._view()

    def _view(self) -> None:
        self.keys, self.values = (block[: self.rows, :, : self.used] for block in self.blocks)


class Running:
    """The sequences that run. Shapes: mask [B, L], positions [B]."""

    def __init__(self, pairs: _Pairs, mask_BL: torch.Tensor, positions_B: torch.Tensor) -> None:
        self.cache = DynamicCache()
        self.cache.layers = [_Layer(keys, values) for keys, values in pairs]
        self.mask_BL = mask_BL
        self.positions_B = positions_B
        """Of the token that comes next."""

    def __len__(self) -> int:
        return len(self.positions_B)

    def grow(self) -> None:
        """Make the mask and positions those of one column more."""
        self.mask_BL = torch.cat([self.mask_BL, torch.ones_like(self.mask_BL[:, :1])], dim=1)

    def rows(self, index: Sequence[int]) -> Running:
        """Some of its sequences, each as often as it is named."""
        at = torch.tensor(index, device=self.mask_BL.device)
        pairs = [(layer.keys[at], layer.values[at]) for layer in self.cache.layers]
        return Running(pairs, self.mask_BL[at], self.positions_B[at])

    def joined(self, other: Running) -> Running:
        """Both, without columns that are padding for all."""
        ours, theirs = self._tight(), other._tight()
        length = max(ours.mask_BL.shape[1], theirs.mask_BL.shape[1])
        pairs = [
            (
                torch.cat([_longer(mine.keys, length), _longer(its.keys, length)]),
                torch.cat([_longer(mine.values, length), _longer(its.values, length)]),
            )
            for mine, its in zip(ours.cache.layers, theirs.cache.layers, strict=True)
        ]
        masks = [torch.nn.functional.pad(each.mask_BL, (length - each.mask_BL.shape[1], 0)) for each in (ours, theirs)]
        return Running(pairs, torch.cat(masks), torch.cat([ours.positions_B, theirs.positions_B]))

    def remove(self, row: int) -> None:
        """Drop a sequence; the last one takes its row."""
        last = len(self) - 1
        if row != last:
            for layer in self.cache.layers:
                layer.move(last, row)
            self.mask_BL[row] = self.mask_BL[last]
            self.positions_B[row] = self.positions_B[last]
        for layer in self.cache.layers:
            layer.shrink(last)
        self.mask_BL, self.positions_B = self.mask_BL[:last], self.positions_B[:last]

    def sequence(self, row: int) -> _Pairs:
        """Keys and values of one sequence, without padding, copied."""
        columns = self.mask_BL[row].nonzero()[:, 0]
        return [(layer.keys[row][:, columns], layer.values[row][:, columns]) for layer in self.cache.layers]

    def _tight(self) -> Running:
        start = int(self.mask_BL.any(0).int().argmax())
        pairs = [(layer.keys[:, :, start:], layer.values[:, :, start:]) for layer in self.cache.layers]
        return self if start == 0 else Running(pairs, self.mask_BL[:, start:], self.positions_B)


@dataclass(frozen=True)
class Prefix:
    """The beginning of a prompt that was computed before. Shapes: [heads, length, size] a layer."""

    length: int
    pairs: _Pairs


@dataclass(frozen=True)
class Shown:
    """A prompt as the chain of hashes sees it: equal ids with other pictures are another prompt."""

    ids: Sequence[int]
    ranges: Sequence[tuple[int, int]]
    digests: Sequence[str]
    """Of each picture."""

    def chain(self) -> list[bytes]:
        """A hash for each whole block, over all that stands before its end."""
        links: list[bytes] = []
        digest = hashlib.sha256()
        pictures = list(zip((start for start, _ in self.ranges), self.digests, strict=True))
        for end in range(BLOCK, len(self.ids) + 1, BLOCK):
            digest.update(repr(self.ids[end - BLOCK : end]).encode())
            while pictures and pictures[0][0] < end:
                digest.update(pictures.pop(0)[1].encode())
            links.append(digest.digest())
        return links

    def outside_pictures(self, length: int) -> int:
        """The nearest length, not above, at which no picture is cut in two."""
        return next((start for start, run in self.ranges if start < length < start + run), length)


class Prefixes:
    """Sequences that have ended, within a bound in tokens; forgotten when the weights change."""

    def __init__(self, most_tokens: int) -> None:
        self._room = most_tokens
        self._kept: OrderedDict[int, tuple[list[bytes], _Pairs, int]] = OrderedDict()
        self._by_link: dict[bytes, tuple[int, int]] = {}
        """By hash: whose prefix it is, and how long."""
        self._serial = 0

    def find(self, shown: Shown) -> Prefix | None:
        """The longest known beginning of a prompt that leaves at least one token to run."""
        links = shown.chain()
        known = next((each for each in map(self._by_link.get, reversed(links)) if each is not None), None)
        if known is None:
            return None
        serial, length = known
        length = shown.outside_pictures(min(length, len(shown.ids) - 1))
        if length < BLOCK:
            return None
        self._kept.move_to_end(serial)
        pairs = [(keys[:, :length], values[:, :length]) for keys, values in self._kept[serial][1]]
        return Prefix(length, pairs)

    def keep(self, shown: Shown, pairs: Callable[[], _Pairs]) -> None:
        """Remember a sequence, unless it is known; `pairs` copies the keys and values of all its ids."""
        links = shown.chain()
        if not links or links[-1] in self._by_link:
            return
        self._serial += 1
        length = len(links) * BLOCK
        self._kept[self._serial] = links, pairs(), length
        self._by_link |= {link: (self._serial, (at + 1) * BLOCK) for at, link in enumerate(links)}
        self._room -= length
        while self._room < 0:
            serial, (links, _, length) = self._kept.popitem(last=False)
            self._room += length
            for link in links:
                if self._by_link.get(link, (0, 0))[0] == serial:
                    del self._by_link[link]

    def forget(self) -> None:
        """Drop everything."""
        self._room += sum(length for _, _, length in self._kept.values())
        self._kept.clear()
        self._by_link.clear()


def full_attention(config: PreTrainedConfig) -> bool:
    """Whether each layer looks at all that precedes: others keep their columns in another way."""
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)


def past_of(prefixes: Sequence[Prefix | None], layers: int) -> tuple[DynamicCache, torch.Tensor]:
    """Prefixes of several prompts, padded on the left to one length, and the mask of what is there."""
    known = [(row, prefix) for row, prefix in enumerate(prefixes) if prefix is not None]
    length = max((prefix.length for _, prefix in known), default=0)
    mask_BL = torch.zeros(len(prefixes), length, dtype=torch.long)
    cache = DynamicCache()
    cache.layers = [DynamicLayer() for _ in range(layers)]
    for row, prefix in known:
        mask_BL[row, length - prefix.length :] = 1
    for at in range(layers if known else 0):
        blocks = [each.new_zeros(len(prefixes), each.shape[0], length, each.shape[2]) for each in known[0][1].pairs[at]]
        for row, prefix in known:
            for block, states in zip(blocks, prefix.pairs[at], strict=True):
                block[row, :, length - prefix.length :] = states
        cache.layers[at] = _Layer(*blocks)
    return cache, mask_BL


def _wider(block: torch.Tensor, columns: int) -> torch.Tensor:
    wide = block.new_empty(*block.shape[:2], columns, block.shape[3])
    wide[:, :, : block.shape[2]] = block
    return wide


def _longer(states: torch.Tensor, length: int) -> torch.Tensor:
    return torch.nn.functional.pad(states, (0, 0, length - states.shape[2], 0))
