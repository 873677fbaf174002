import asyncio

from lib.errors import LLMError
from lib.llm import LLMClient, ScriptedClient
from lib.vector import (
    Doc,
    EmbeddingIndex,
    Hit,
    InMemoryVectorStore,
    LLMReranker,
    LSAEmbedder,
    RerankingIndex,
)

PAGES = {
    "postage": "We pay the postage of every parcel that you send back to us.",
    "address": "Send parcels to our house; write your number on the parcel.",
    "refund": "Your money is with you three days after the parcel is with us.",
}


async def search(index: EmbeddingIndex, model: LLMClient, query: str) -> list[Hit]:
    reranking = RerankingIndex(index, LLMReranker(model), fetch_k=30)
    try:
        return await reranking.search(query, k=2)
    except LLMError as error:  # the model cannot be reached: the first stage still can
        print("not reranked:", error)
        return await index.search(query, k=2)


async def main() -> None:
    embedder = LSAEmbedder(dimension=4)
    await embedder.fit(list(PAGES.values()))
    index = EmbeddingIndex(InMemoryVectorStore(), embedder)
    await index.add([Doc(name, text) for name, text in PAGES.items()])

    query = "when is the refund for my parcel here?"
    for answer in ('{"order": [2, 1, 3]}', "I would rather not say.", LLMError("out of order")):
        model = ScriptedClient([answer])  # in its place: ChatClient("...")
        print([hit.id for hit in await search(index, model, query)])


asyncio.run(main())
