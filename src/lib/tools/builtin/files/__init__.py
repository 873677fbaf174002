"""Read and list files below one directory, and nothing outside of it."""

from __future__ import annotations

from lib.tools.builtin.files.access import FileAccess
from lib.tools.builtin.files.deny import DENY
from lib.tools.builtin.files.tool import list_files_tool, read_file_tool

__all__ = ["DENY", "FileAccess", "list_files_tool", "read_file_tool"]
