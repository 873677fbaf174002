"""What users need to test their agents and their own stores, sinks, tools and algorithms.

The contract suites are the ones that the library's own implementations pass. Needs the extra
`testing`; nothing else in `lib` imports this package.
"""
