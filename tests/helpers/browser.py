"""Pages in a real browser."""

from collections.abc import Callable
from typing import Any

import pytest


class Browser:
    """A page in a real browser, the requests it made and the errors it logged."""

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.set_default_timeout(120_000)
        page.on("console", lambda message: self.errors.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda made: self.requests.append(made.url))
        page.goto(address)

    def wait_for(self, state: str) -> None:
        self.page.locator(f"#state.{state}").wait_for()

    def tile(self, name: str) -> str:
        return self.page.locator(f".tile:has(span:text-is('{name}')) b").inner_text()

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(600):
            if condition():
                return
            self.page.wait_for_timeout(200)
        pytest.fail(f"never came true; the page says {self.page.locator('#state').inner_text()}")

    def traces(self) -> dict[str, int]:
        """The number of traces in each figure."""
        return self.page.evaluate(
            "Object.fromEntries([...document.querySelectorAll('.plot')].map(d => "
            "[d.id, d.querySelectorAll('.main-svg .scatterlayer .trace, .main-svg .barlayer .trace').length]))"
        )
