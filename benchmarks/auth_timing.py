"""Times of refusals of API keys: a wrong secret of a key beside an id that no key has.

    python benchmarks/auth_timing.py [--tries 10000] [--step 0.01] [--store memory:]

For each pair, how probable it is that a refusal of the one takes longer than one of the other
(Mann and Whitney's U over the product of the counts; 0.5: not distinguishable), with the
interval in which 95 % of measurements of equal times fall. `--step 0` shows what refusals take that
are not rounded up to a step of time. Nothing here is a test: machines differ.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import statistics
import time

from lib.events import open_store
from lib_server.auth.api_key import REFUSAL_STEP_S, ApiKeyAuthenticator
from lib_server.auth.keys import ApiKeys, new_key
from lib_server.auth.principal import Unauthenticated

AT_ONCE = 8


def with_id(key_id: str) -> str:
    """Return a key of this id with a secret of its own: of another key until the checksum fits."""
    from lib_server.auth import keys

    other = new_key("lib_sk")
    body = f"lib_sk_{key_id}_{other.key[20:63]}"
    return body + keys._checksum(body)  # noqa: SLF001 - forges one, as an attacker would


async def refusal_s(authenticator: ApiKeyAuthenticator, header: str) -> float:
    began = time.perf_counter()
    try:
        await authenticator.authenticate(header)
    except Unauthenticated:
        return time.perf_counter() - began
    raise AssertionError("a wrong key was admitted")


async def measure(
    authenticator: ApiKeyAuthenticator, known_id: str, tries: int
) -> dict[str, list[float]]:
    """Return the times of refusals of both kinds, which take turns at random."""
    kinds = ["wrong secret", "unknown id"] * tries
    random.Random(1).shuffle(kinds)
    headers = [
        "Bearer " + (with_id(known_id) if kind == "wrong secret" else new_key("lib_sk").key)
        for kind in kinds
    ]
    times: dict[str, list[float]] = {"wrong secret": [], "unknown id": []}
    for start in range(0, len(kinds), AT_ONCE):
        batch = slice(start, start + AT_ONCE)
        took = await asyncio.gather(*(refusal_s(authenticator, each) for each in headers[batch]))
        for kind, each in zip(kinds[batch], took, strict=True):
            times[kind].append(each)
    return times


def is_longer(first: list[float], second: list[float]) -> float:
    """Return the probability that one of the first is longer than one of the second."""
    ordered = sorted([(each, 0) for each in first] + [(each, 1) for each in second])
    ranks = sum(rank for rank, (_, kind) in enumerate(ordered, 1) if kind == 0)
    return (ranks - len(first) * (len(first) + 1) / 2) / (len(first) * len(second))


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tries", type=int, default=10_000, help="of each kind")
    parser.add_argument("--step", type=float, default=REFUSAL_STEP_S, help="seconds")
    parser.add_argument("--store", default="memory:", help="a path or a URL")
    options = parser.parse_args()
    store = open_store(options.store)
    await store.setup()
    key = await ApiKeys(store).create(tenant="acme")
    authenticator = ApiKeyAuthenticator(store, refusal_step_s=options.step)
    await authenticator.authenticate(f"Bearer {key.key}")
    times = await measure(authenticator, key.record.key_id, options.tries)
    for kind, each in times.items():
        quantiles = statistics.quantiles(each, n=100)
        print(
            f"{kind:>13}: median {quantiles[49] * 1e6:9.2f} us, p5 {quantiles[4] * 1e6:9.2f},"
            f" p95 {quantiles[94] * 1e6:9.2f}"
        )
    longer = is_longer(times["wrong secret"], times["unknown id"])
    chance = 1.96 * math.sqrt((2 * options.tries + 1) / (12 * options.tries**2))
    verdict = "distinguishable" if abs(longer - 0.5) > chance else "not distinguishable"
    print(
        f"a wrong secret takes longer with probability {longer:.4f}: {verdict}"
        f" (0.5 +- {chance:.4f})"
    )
    await authenticator.aclose()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main())
