"""The package exports what it offers, and nothing else."""

from operator import attrgetter

import pytest

from lib.tools import builtin


@pytest.mark.parametrize("name", builtin.__all__)
def test_every_name_that_is_offered_is_there(name: str) -> None:
    assert getattr(builtin, name) is not None


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'fetch_anything'"):
        attrgetter("fetch_anything")(builtin)
