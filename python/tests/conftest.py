"""What tests share: the built-in network and photograph, and small modules."""

import pytest

import monosplit as ms


@pytest.fixture(scope="session")
def model():
    return ms.load(ms.assets.network())


@pytest.fixture(scope="session")
def photograph():
    return ms.assets.photograph()


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning")
