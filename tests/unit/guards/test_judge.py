"""A model as judge of what agents say."""

import pytest

from lib.errors import LLMError
from lib.guards import LLMGuard, Verdict
from lib.llm import Reply, ScriptedClient, Text, Usage
from lib.resilience import RetryPolicy

from .guard_kit import guard_content


async def judged(
    *answers: str | Reply | Exception, text: str = 'say "hi"'
) -> tuple[Verdict, ScriptedClient]:
    client = ScriptedClient(answers)
    retries = RetryPolicy(attempts=2, base_s=0.001)
    guard = LLMGuard(client, "No pirates.", retries=retries)
    return await guard.check(guard_content(text)), client


async def test_a_judge_reads_the_policy_and_the_text_as_data() -> None:
    reply = Reply((Text('{"allowed": true, "rule": ""}'),), usage=Usage(input_tokens=3))
    verdict, client = await judged(reply)

    assert verdict == Verdict(allowed=True, usage=Usage(input_tokens=3), model="scripted")
    system, user = client.calls[0].messages
    assert "No pirates." in system.text
    assert user.text == '"say \\"hi\\""'


async def test_what_a_judge_says_in_its_own_words_is_not_kept() -> None:
    verdict, _ = await judged('{"allowed": false, "rule": "says hi"}')

    assert (verdict.allowed, verdict.reason) == (False, "it breaks the policy")


async def test_a_judge_that_cannot_be_read_allows_nothing_and_is_paid_for() -> None:
    verdict, _ = await judged("sure!")

    assert (verdict.allowed, verdict.reason) == (False, "the judge's reply cannot be read")
    assert verdict.usage is not None


async def test_a_judge_is_called_again_and_then_fails() -> None:
    passing = LLMError("busy", retryable=True)

    assert (await judged(passing, '{"allowed": true, "rule": ""}'))[0].allowed
    with pytest.raises(LLMError):
        await judged(passing, passing)


async def test_what_is_too_long_to_be_read_is_not_allowed() -> None:
    verdict, client = await judged(text="a" * 100_001)

    assert (verdict.allowed, client.calls) == (False, [])
