"""`python -m lib_server` is `lib-server`."""

from lib_server.cli import main

main(prog_name="lib-server")
