import asyncio
from pathlib import Path

from lib.ingest import ingest_folder
from lib.vector import EmbeddingIndex, F, LSAEmbedder, SQLiteVectorStore

PAGES = {
    "returns.md": "# Returns\n\nSend it back within 30 days. We pay the postage.\n",
    "shipping.md": "# Shipping\n\nParcels leave our house every evening.\n\nAbroad: a week.\n",
    "faq/money.md": "# Money\n\nRefunds arrive within three days of the parcel.\n",
}


async def main() -> None:
    for name, text in PAGES.items():
        page = Path("pages", name)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")

    embedder = LSAEmbedder(dimension=16)  # learns from the documents: no model, no key
    store = SQLiteVectorStore("vectors.db", dimension=16)
    await store.setup()
    index = EmbeddingIndex(store, embedder, hybrid="auto")
    report = await ingest_folder("pages", index, manifest="manifest.json", fit=embedder)
    print(report.added, "files,", report.chunks, "chunks")

    for hit in await index.search("when do refunds come?", k=1):
        print(f"{hit.meta['source']}:{hit.meta['line']}", hit.metric)
    for hit in await index.search("parcel", filter=F("source") != "faq/money.md", k=1):
        print(f"{hit.meta['source']}:{hit.meta['line']}", hit.metric)
    await store.close()


asyncio.run(main())
