from __future__ import annotations

import asyncio

import pytest

from turnstile.engines.llamacpp_slots import ANY_SLOT, SlotPool


async def test_a_slot_is_never_leased_twice_at_once():
    pool = SlotPool(2)
    held = set()
    most = 0

    async def use(at):
        nonlocal most
        async with pool.lease(str(at % 3)) as lease:
            assert lease.id_slot not in held
            held.add(lease.id_slot)
            most = max(most, len(held))
            await asyncio.sleep(0)
            held.remove(lease.id_slot)

    await asyncio.gather(*(use(at) for at in range(20)))
    assert most == 2


async def test_the_same_affinity_gets_the_slot_that_it_had():
    pool = SlotPool(3)
    async with pool.lease("a") as a, pool.lease("b") as b:
        pass
    async with pool.lease("b") as b_again, pool.lease("a") as a_again:
        assert (a_again.id_slot, b_again.id_slot) == (a.id_slot, b.id_slot)


async def test_an_unknown_affinity_gets_the_slot_that_was_unused_for_longest():
    pool = SlotPool(2)
    async with pool.lease("a") as a:
        pass
    async with pool.lease("b") as b:
        pass
    async with pool.lease("c") as c:
        assert (c.id_slot, b.id_slot) == (a.id_slot, 1 - a.id_slot)


async def test_whoever_waited_longest_is_served_first():
    pool = SlotPool(1)
    order = []

    async def use(name):
        async with pool.lease(name):
            order.append(name)
            await asyncio.sleep(0)

    await asyncio.gather(*(use(name) for name in "abcd"))
    assert order == list("abcd")


async def test_a_caller_that_gives_up_waiting_takes_no_slot_with_it():
    pool = SlotPool(1)
    async with pool.lease("a"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), pool.lease("b"):
                pass
    async with asyncio.timeout(1), pool.lease("c") as lease:
        assert lease.id_slot == 0


async def test_slots_are_not_named_any_more_once_one_was_found_empty():
    pool = SlotPool(2)
    async with pool.lease("a") as a:
        a.found_empty()
        assert a.id_slot == ANY_SLOT
    async with pool.lease("b") as b:
        assert b.id_slot == ANY_SLOT
