from lib.vector import F, Filter
from lib.vector.filter import matches

# The same filter, built and as plain data; every store gives it the same meaning.
built = (F("price") < 20) & (F("tags").contains("new") | ~F("sold").exists())
plain = Filter.parse(
    {
        "price": {"$lt": 20},
        "$or": [{"tags": {"$contains": "new"}}, {"sold": {"$exists": False}}],
    }
)

for meta in (
    {"price": 10, "tags": ["new"], "sold": True},
    {"price": 10, "tags": ["old"]},
    {"price": "10", "tags": ["new"]},  # text is not a number: no match
    {"tags": ["new"]},  # neither is nothing
):
    assert plain is not None and matches(built, meta) == matches(plain, meta)
    print(matches(built, meta), meta)

# The names of a nested field stand from the outside in; "author.name" would be one key with a dot.
assert matches(F("author", "name") == "Ann", {"author": {"name": "Ann"}})
