"""What of a page can be seen: style sheets, colours and boxes, as far as they hide text."""

from lib.content.html.visibility.page import Sight, sight_of

__all__ = ["Sight", "sight_of"]
