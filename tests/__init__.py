"""Tests: a folder for each package of ``src/fedfa``, and what several of them share in ``helpers``."""

import pytest

pytest.register_assert_rewrite("tests.helpers")
