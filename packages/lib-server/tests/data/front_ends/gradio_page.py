"""The chat page of gradio over OpenAI's API: python gradio_page.py URL PORT."""

import sys
from importlib import import_module
from typing import Any

gradio: Any = import_module("gradio")  # it is in an environment of its own, without types
gradio.load_chat(sys.argv[1], model="shop", token="none").launch(server_port=int(sys.argv[2]))
