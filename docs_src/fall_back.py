import logging

from lib import Agent
from lib.errors import LLMError
from lib.llm import FunctionClient, ResilientClient
from lib.resilience import CircuitBreaker, RateLimiter, RetryPolicy

logging.getLogger("lib.llm").setLevel(logging.ERROR)  # each fall back is a warning


def fail() -> str:
    raise LLMError("the server is down", status=503, retryable=True)


# These two stand in for models: "openai:gpt-5-mini" and "anthropic:claude-sonnet-4-5" are real.
first = FunctionClient(lambda _: fail(), model="first")
second = FunctionClient(lambda _: "Take an umbrella.", model="second")

breaker = CircuitBreaker("OpenAI", failures=2, open_s=30.0)
limiter = RateLimiter("OpenAI", requests_per_minute=500, tokens_per_minute=200_000)
agent = Agent(
    [ResilientClient(first, breaker=breaker, limiter=limiter), second],
    instructions="You forecast.",
    retries=RetryPolicy(attempts=2, base_s=0.0),
    deadline_s=20.0,
)
print(agent.run_sync("What shall I wear?").output, breaker.state)
print(agent.run_sync("And tomorrow?").output, "OpenAI was not called")
