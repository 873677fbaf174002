"""The machine's own Chromium for tests of pages: where it is, and how it is started."""

import os
import shutil

import pytest

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "msedge",
    "microsoft-edge",
)
SANDBOX = ("--no-sandbox",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()
FLAGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    *SANDBOX,
)

VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective}: ${event.blockedURI}`);
});
"""
"""Notes every violation of the page's Content-Security-Policy."""


def find_browser() -> str:
    """Return the browser's path; without one, skip, or fail where one is required."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        reason = f"no browser on PATH ({', '.join(BROWSERS)}): install the package chromium"
        if os.environ.get("LIB_TEST_BROWSER") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    return found
