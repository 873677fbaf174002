"""HTML to blocks of visible text, to the main content, and to text in the manner of Markdown."""
