"""SQLite keeps the contract of a store."""

from itertools import count

import pytest

from contracts.store_contract import *  # noqa: F403


@pytest.fixture
def new_url(tmp_path):
    numbers = count()
    return lambda: f"sqlite:///{tmp_path}/index-{next(numbers)}.sqlite"


@pytest.fixture
def url(new_url):
    return new_url()
