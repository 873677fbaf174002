"""`python -m lib.cli` is the command `lib`."""

from lib.cli.main import main

main(prog_name="lib")
