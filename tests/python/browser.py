"""A headless Chromium, where one is installed (Debian's package `chromium`): what a page is once its scripts ran."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from patience import PATIENCE_S

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


def _run(page: Path, profile: Path, query: str, *options: str) -> str:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    alone = ["--no-sandbox"] if os.getuid() == 0 else []
    done = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--disable-gpu",
            "--hide-scrollbars",
            "--virtual-time-budget=8000",  # milliseconds of the page's own clock
            "--host-resolver-rules=MAP * ~NOTFOUND",  # no network
            f"--user-data-dir={profile}",
            *alone,
            *options,
            page.resolve().as_uri() + (f"?{query}" if query else ""),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def dom_of(
    page: Path, profile: Path, *, query: str = "", width: int = 1200, dark: bool = False
) -> str:
    """The page's elements after its scripts ran. Skips the test where there is no browser."""
    return _run(page, profile, query, "--dump-dom", f"--window-size={width},900", *_scheme(dark))


def screenshot(
    page: Path, profile: Path, target: Path, *, width: int, height: int = 900, dark: bool = False
) -> Path:
    """A picture of the page, a PNG. Skips the test where there is no browser."""
    _run(
        page,
        profile,
        "",
        f"--screenshot={target}",
        f"--window-size={width},{height}",
        *_scheme(dark),
    )
    return target


def _scheme(dark: bool) -> list[str]:
    return ["--blink-settings=preferredColorScheme=0"] if dark else []
