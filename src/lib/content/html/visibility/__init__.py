"""Finds hidden text: style sheets, colours and boxes, as far as they hide it."""

from lib.content.html.visibility.page import Sight, find_hidden_text

__all__ = ["Sight", "find_hidden_text"]
