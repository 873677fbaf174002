"""Pinned connections: where they go, when they are used again, and that they end."""

import asyncio
import gc
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fakes.hostile_server import SENT_AHEAD, HostileServer
from lib._util.clock import SYSTEM_CLOCK
from lib.errors import FetchBlocked, ToolError
from lib.testing.aio import run
from lib.tools.builtin.fetch.fetcher import Page, SafeFetcher
from lib.tools.builtin.fetch.network import PinnedBackend
from lib.tools.builtin.fetch.policy import FetchPolicy, Rules
from lib.tools.builtin.fetch.resolver import Addresses

TLS = Path(__file__).parents[4] / "data" / "builtin" / "tls"
TWO = ["93.184.216.34", "2606:4700::1111"]


class Names:
    def __init__(self, *answers: list[str]) -> None:
        self._answers, self.lookups = answers, 0

    async def resolve(self, host: str, port: int) -> list[str]:
        self.lookups += 1
        return self._answers[min(self.lookups, len(self._answers)) - 1]


async def test_a_connection_serves_one_request(internet: Any) -> None:
    names = Names(TWO)

    async with HostileServer() as internet.server, SafeFetcher(resolver=names) as fetcher:
        for _ in range(3):
            await fetcher.fetch("http://srv.test/")

    assert [request.connection for request in internet.server.requests] == [0, 1, 2]
    assert (names.lookups, internet.dialled) == (3, [("93.184.216.34", 80)] * 3)


@pytest.mark.parametrize("secure", [False, True])
async def test_nothing_that_a_server_sends_ahead_answers_a_later_fetch(
    secure: bool,
    internet: Any,
) -> None:
    url = f"{'https' if secure else 'http'}://a.example.com"

    wrong: list[str] = []
    server = HostileServer(certificate=TLS / "good.pem")
    fetcher = SafeFetcher(resolver=Names(TWO), verify=False)
    async with server as internet.server, fetcher:
        for name in SENT_AHEAD:
            with suppress(ToolError):
                await fetcher.fetch(f"{url}/{name}")
            page = await fetcher.fetch(f"{url}/harmless")
            wrong += [name] if page.body != b"a page" else []
    assert wrong == []


async def test_what_a_proxy_sends_ahead_answers_no_later_fetch(internet: Any) -> None:
    wrong: list[str] = []
    async with HostileServer() as internet.server:
        proxy = f"http://127.0.0.1:{internet.server.http_port}"
        async with SafeFetcher(proxy=proxy) as fetcher:
            for name in SENT_AHEAD:
                with suppress(ToolError):
                    await fetcher.fetch(f"http://srv.test/{name}")
                page = await fetcher.fetch("http://srv.test/harmless")
                wrong += [name] if page.body != b"a page" else []
    assert wrong == []


async def test_a_name_that_moves_inside_is_caught_with_the_next_connection(internet: Any) -> None:
    names = Names(["93.184.216.34"], ["127.0.0.1"])

    async with HostileServer() as internet.server, SafeFetcher(resolver=names) as fetcher:
        await fetcher.fetch("http://srv.test/http_1_0")
        with pytest.raises(FetchBlocked, match="address not public"):
            await fetcher.fetch("http://srv.test/")

    assert internet.dialled == [("93.184.216.34", 80)]


async def test_addresses_are_tried_in_their_order(internet: Any) -> None:
    internet.refused = {"93.184.216.34"}

    async def main() -> Page:
        async with HostileServer() as internet.server, SafeFetcher(resolver=Names(TWO)) as fetcher:
            return await fetcher.fetch("http://srv.test/")

    assert (await main()).body == b"a page"
    assert internet.dialled == [(address, 80) for address in TWO]


async def test_an_address_that_does_not_answer_leaves_time_for_the_next(silence: Any) -> None:
    async def main() -> None:
        policy = FetchPolicy(connect_timeout_s=0.2)
        async with HostileServer() as silence.server, SafeFetcher(policy, resolver=Names(TWO)) as f:
            await f.fetch("http://srv.test/")

    with pytest.raises(ToolError, match=r"'srv\.test' did not take the connection in time"):
        await main()
    assert silence.dialled == [(address, 80) for address in TWO]


async def test_the_error_of_a_refused_connection_holds_no_address(internet: Any) -> None:
    internet.refused = set(TWO)

    with pytest.raises(ToolError) as caught:
        await SafeFetcher(resolver=Names(TWO)).fetch("http://srv.test/")

    assert (caught.value.code, str(caught.value)) == (
        "unavailable",
        "the connection to 'srv.test' failed",
    )
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize("peer", [("10.0.0.1", 80), ("93.184.216.34", 81)])
async def test_a_connection_that_leads_elsewhere_is_not_used(peer: Any, internet: Any) -> None:
    internet.peer = peer

    async def main() -> None:
        async with HostileServer() as internet.server, SafeFetcher(resolver=Names(TWO)) as fetcher:
            await fetcher.fetch("http://srv.test/")

    with pytest.raises(FetchBlocked, match="connected elsewhere"):
        await main()
    assert internet.server.requests == []


async def test_no_connection_leads_to_a_unix_socket() -> None:
    backend = PinnedBackend(Addresses(Rules(FetchPolicy()), None))

    with pytest.raises(FetchBlocked):
        await backend.connect_unix_socket("/var/run/docker.sock")
    await backend.sleep(0)


async def test_real_sockets_on_a_private_network_that_is_allowed() -> None:
    async with HostileServer() as server:
        policy = FetchPolicy(allow_private_networks=True, allowed_ports=(server.http_port,))
        async with SafeFetcher(policy) as fetcher:
            pages = [
                await fetcher.fetch(f"http://{host}:{server.http_port}/")
                for host in ("127.0.0.1", "[::ffff:127.0.0.1]", "localhost")
            ]
    assert [request.headers["host"] for request in server.requests] == [
        f"{host}:{server.http_port}" for host in ("127.0.0.1", "[::ffff:7f00:1]", "localhost")
    ]
    assert [page.body for page in pages] == [b"a page"] * 3


def test_one_fetcher_serves_several_event_loops_also_at_once(internet: Any) -> None:
    fetcher = SafeFetcher(resolver=Names(TWO))

    async def main() -> None:
        async with HostileServer() as server:
            internet.server = server
            pages = [fetcher.fetch("http://srv.test/") for _ in range(5)]
            assert [page.status for page in await asyncio.gather(*pages)] == [200] * 5

    run(main())
    run(main())
    threads = [threading.Thread(target=run, args=(main(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run(main())

    assert len(fetcher._sender._pools) <= 2  # type: ignore[attr-defined] - what it keeps is tested


def test_unclosed_connections_end_with_the_loop(internet: Any) -> None:
    async def main() -> None:
        async with HostileServer() as internet.server:
            await SafeFetcher(resolver=Names(TWO)).fetch("http://srv.test/")

    run(main())
    gc.collect()  # where a socket were left open, a warning, and so an error


async def test_a_fetcher_that_was_closed_opens_connections_again(internet: Any) -> None:
    fetcher = SafeFetcher(resolver=Names(TWO))
    await fetcher.aclose()
    async with HostileServer() as internet.server:
        for _ in range(2):
            await fetcher.fetch("http://srv.test/")
            await fetcher.aclose()
            await fetcher.aclose()

    assert [request.connection for request in internet.server.requests] == [0, 1]


async def test_a_fetch_may_be_cancelled_before_anything_is_open(internet: Any) -> None:
    async def main() -> Page:
        fetcher = SafeFetcher(resolver=Names(TWO))
        task = asyncio.create_task(fetcher.fetch("http://srv.test/"))
        await SYSTEM_CLOCK.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await fetcher.aclose()
        async with HostileServer() as internet.server, fetcher:
            return await fetcher.fetch("http://srv.test/")

    assert (await main()).body == b"a page"
    assert len(internet.server.requests) == 1


@pytest.mark.parametrize("where", ["slow_headers", "slow_body", "silence"])
async def test_a_fetch_that_is_cancelled_leaves_the_fetcher_usable(
    where: str, internet: Any
) -> None:
    async def main() -> Page:
        async with HostileServer() as internet.server, SafeFetcher(resolver=Names(TWO)) as fetcher:
            task = asyncio.create_task(fetcher.fetch(f"http://srv.test/{where}"))
            while not internet.server.requests:
                await SYSTEM_CLOCK.sleep(0.001)
            await SYSTEM_CLOCK.sleep(0.2)  # some of the answer comes
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await fetcher.fetch("http://srv.test/")

    assert (await main()).body == b"a page"


async def test_certificate_files_of_the_environment_are_ignored(
    internet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "authority.pem"))

    async def main() -> None:
        async with HostileServer(certificate=TLS / "good.pem") as internet.server:
            await SafeFetcher(resolver=Names(TWO)).fetch("https://a.example.com/")

    with pytest.raises(
        ToolError, match=r"the certificate of 'a\.example\.com' could not be verified"
    ):
        await main()


@pytest.mark.parametrize(
    "proxy",
    [
        "socks5://127.0.0.1:1",
        "127.0.0.1:1",
        "http://",
        "http://a:x/",
        "ftp://a/",
        f"http://{'a' * 70}.com",
    ],
)
def test_a_proxy_is_an_http_proxy(proxy: str) -> None:
    with pytest.raises(ValueError, match="proxy is the URL of an HTTP proxy"):
        SafeFetcher(proxy=proxy)


def test_a_proxy_is_a_text() -> None:
    proxy: Any = 5

    with pytest.raises(TypeError, match="proxy is a str, not int"):
        SafeFetcher(proxy=proxy)


async def test_a_proxy_makes_the_connections_and_hosts_are_judged_before() -> None:
    names = Names(TWO)

    async with HostileServer() as server:
        proxy = f"http://user:password@127.0.0.1:{server.http_port}"
        policy = FetchPolicy(denied_hosts=("evil.org",))
        async with SafeFetcher(policy, resolver=names, proxy=proxy) as fetcher:
            page = await fetcher.fetch("http://example.com/x")
            for blocked in ("http://10.0.0.1/", "http://evil.org/", "http://db.internal/"):
                with pytest.raises(FetchBlocked):
                    await fetcher.fetch(blocked)
    assert page.body == b"a page"
    assert [request.target for request in server.requests] == ["http://example.com:80/x"]
    assert "proxy-authorization" in server.requests[0].headers

    assert names.lookups == 0


async def pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
    target.close()


async def test_a_proxy_is_a_tunnel_for_https_and_certificates_are_the_hosts() -> None:
    connected: list[bytes] = []

    async with HostileServer(certificate=TLS / "good.pem") as server:

        async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connected.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0])
            there = await asyncio.open_connection("127.0.0.1", server.https_port)
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            await asyncio.gather(pipe(reader, there[1]), pipe(there[0], writer))

        proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        trust = ssl.create_default_context(cafile=TLS / "authority.pem")
        async with SafeFetcher(verify=trust, proxy=url) as fetcher:
            assert (await fetcher.fetch("https://a.example.com/")).body == b"a page"
            with pytest.raises(ToolError, match="certificate"):
                await fetcher.fetch("https://wrong.example.com/")
        proxy.close()
        await SYSTEM_CLOCK.sleep(0.05)

    assert connected == [
        b"CONNECT a.example.com:443 HTTP/1.1",
        b"CONNECT wrong.example.com:443 HTTP/1.1",
    ]


async def test_the_error_of_a_failing_proxy_does_not_name_it() -> None:
    fetcher = SafeFetcher(proxy="https://user:password@127.0.0.1:1")

    with pytest.raises(ToolError) as caught:
        await fetcher.fetch("https://example.com/")

    assert str(caught.value) == "the connection to 'example.com' failed"
