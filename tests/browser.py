"""A real browser, where there is one: what it makes of a page, without and with its own measuring of the layout."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), "")
WIDTHS = (390, 1280)
"""Of a phone, and of a desktop."""
NEEDED = pytest.mark.skipif(not BROWSER, reason="Chromium is not installed")

MEASURE = """<script>
const wide = [...document.querySelectorAll("body *")].filter(one => !one.closest(".scroll, svg")
  && (one.scrollWidth > one.clientWidth && getComputedStyle(one).display != "inline"
      || one.getBoundingClientRect().right > innerWidth));
parent.document.title = "measured " + JSON.stringify([innerWidth, document.documentElement.scrollWidth,
  wide.map(one => one.tagName + "." + one.className)]);
</script></body>"""


def dom_of(page: Path, profile: Path, *, script: bool) -> str:
    """The document once the browser has laid it out. ``profile``: a folder of this browser's own."""
    # Scripts are switched off by the profile: by a flag, the browser's own scripts that print the page are off too.
    (profile / "Default").mkdir(parents=True, exist_ok=True)
    setting = {"default_content_setting_values": {"javascript": 1 if script else 2}}
    (profile / "Default" / "Preferences").write_text(json.dumps({"profile": setting}))
    words = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    words += ["--hide-scrollbars", "--dump-dom", page.as_uri()]
    environment = {**os.environ, "HOME": str(profile)}
    ran = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60, env=environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def check_fits(page: str, folder: Path) -> None:
    """Nothing of the page is cut off, or has to be scrolled to, but for what may scroll."""
    for width in WIDTHS:
        file = folder / f"measured-{width}.html"
        framed = html.escape(page.replace("</body>", MEASURE))  # no window is as narrow as a phone
        file.write_text(
            f'<!doctype html><title></title><iframe width={width} frameborder=0 srcdoc="{framed}"></iframe>'
        )
        shown = dom_of(file, folder / f"profile-{width}", script=True)
        found = re.search("<title>measured (.*?)</title>", shown)
        assert found, shown[:500]
        assert json.loads(html.unescape(found[1])) == [width, width, []]
