"""A headless Chromium for tests of pages; they are skipped where none is installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--window-size=1280,1000",
)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A driver of selenium's, with an empty profile and all that the console says."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no Chromium with chromedriver (Debian: chromium chromium-driver)")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=Service(driver))
    yield opened
    opened.quit()


def open_page(chromium: Any, path: Path) -> None:
    """Open a page; what the console said before is forgotten."""
    chromium.get_log("browser")
    chromium.get(path.resolve().as_uri())


def complaints(chromium: Any) -> list[str]:
    """What the console has said since the page was opened, warnings too."""
    return [entry["message"] for entry in chromium.get_log("browser")]


def click_cell(chromium: Any, plot: str, x: float, y: float) -> None:
    """Click where a plot has its values x and y."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    area = chromium.find_element(By.CSS_SELECTOR, f"#{plot} .nsewdrag")
    chromium.execute_script("arguments[0].scrollIntoView({block: 'center'})", area)
    place = """
        const plot = document.getElementById(arguments[0]), own = plot._fullLayout;
        plot._hoverdata = undefined;
        const {width, height} = arguments[1].getBoundingClientRect();
        return [own.xaxis.l2p(arguments[2]) - width / 2, own.yaxis.l2p(arguments[3]) - height / 2];
    """
    across, down = chromium.execute_script(place, plot, area, x, y)
    moves = ActionChains(chromium).move_to_element_with_offset(area, int(across), int(down))
    moves.perform()
    # The plot gives a click to what it has found under the pointer, some time after the move.
    waited(chromium, "return Boolean(document.getElementById(arguments[0])._hoverdata)", plot)
    ActionChains(chromium).click().pause(0.4).perform()


def waited(chromium: Any, script: str, *arguments: Any) -> Any:
    """What a script returns, once that is something; half a minute is waited on a busy machine."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(chromium, 30).until(lambda _: chromium.execute_script(script, *arguments))


def choose(chromium: Any, select: str, value: str) -> None:
    """Choose in a list by its value."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    Select(chromium.find_element(By.ID, select)).select_by_value(value)


def text_of(chromium: Any, name: str) -> str:
    """What an element says."""
    from selenium.webdriver.common.by import By

    return chromium.find_element(By.ID, name).text


__all__ = ["chromium", "choose", "click_cell", "complaints", "open_page", "text_of", "waited"]
