"""Fixtures that several files share."""

import logging
from typing import Any

import pytest

from fedfa.learning.probe import say_once


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Any:
    """What was logged so far; lines that are said once are said anew."""
    say_once.cache_clear()
    caplog.set_level(logging.WARNING, "fedfa")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "fedfa"]
