"""Another server process: tells for each line of its input whether it admits the key there.

    python other_process.py STORE_URL MAX_AGE_S

A line is `+SECONDS` for time that passes, or an Authorization header.
"""

import asyncio
import sys

from lib.events import open_store
from lib.testing.clock import ManualClock
from lib_server.auth.api_key import ApiKeyAuthenticator
from lib_server.auth.principal import Unauthenticated


async def main(url: str, max_age_s: float) -> None:
    clock = ManualClock()
    store = open_store(url)
    await store.setup()
    authenticator = ApiKeyAuthenticator(store, max_age_s=max_age_s, refusal_step_s=0, clock=clock)
    while line := (await asyncio.to_thread(sys.stdin.readline)).rstrip("\n"):
        if line.startswith("+"):
            clock.advance(float(line))
            continue
        try:
            principal = await authenticator.authenticate(line)
        except Unauthenticated as error:
            print(error.reason, flush=True)  # noqa: T201 - its answer
        else:
            print(principal.tenant, flush=True)  # noqa: T201 - its answer
    await authenticator.aclose()
    await store.close()


asyncio.run(main(sys.argv[1], float(sys.argv[2])))
