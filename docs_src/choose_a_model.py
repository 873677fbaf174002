import os

from lib import Agent
from lib.llm import ScriptedClient

# AGENT_MODEL=anthropic:claude-sonnet-4-5 in the environment makes it a real one.
model = os.environ.get("AGENT_MODEL") or ScriptedClient(["Take an umbrella."])

result = Agent(model, instructions="You forecast.").run_sync("What shall I wear?")
print(result.output)

try:
    Agent("antropic:claude-sonnet-4-5")
except ValueError as error:
    print(str(error).partition(" providers")[0])
