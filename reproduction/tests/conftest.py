"""Fixtures for the tests of the reproduction."""

import pytest


@pytest.fixture
def without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder with data sets is named anywhere."""
    monkeypatch.delenv("FEDFA_DATA", raising=False)
