"""One trace as one page that needs nothing else: no network, no server, no library.

Names and content come from models and customers, so the page trusts none of it: the trace is data
in a block that no browser runs, the script puts it on the page as text only, and a policy forbids
any other script, style or request, and any way of making text into markup.
"""

from __future__ import annotations

from lib.observe.view.page.document import Page, Waterfall, render_page, waterfall

__all__ = ["Page", "Waterfall", "render_page", "waterfall"]
