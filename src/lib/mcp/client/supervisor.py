"""Runs a command, and kills it with all that it has started when the process that wants it ends.

Run as a script of its own, in a session and process group of its own:
`python -I -S supervisor.py LIFELINE PARENT COMMAND…`. LIFELINE is the reading end of a pipe whose
writing end only PARENT has: it breaks when PARENT lets go of it, or ends in any way, `kill -9`
included. Then, and when the command has ended, the whole group is killed.
"""

from __future__ import annotations

import os
import select
import signal
import sys

_LOOK_S = 2.0  # a fork of the parent may have inherited the lifeline: it outlives the parent then


def _wake(signal_number: int, frame: object) -> None:
    """Let Python write to the wakeup descriptor."""


def main(lifeline: int, parent: int, command: list[str]) -> None:
    """Run the command; never returns."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, _wake)
    child = os.fork()
    if child == 0:
        os.close(lifeline)
        try:
            os.execvp(command[0], command)  # noqa: S606 - the command is the application's
        except OSError as error:
            os.write(2, f"{command[0]}: {error.strerror}\n".encode())
            os._exit(127)
    for inherited in (0, 1, 2):  # else the command could not close them
        os.close(inherited)
    while os.getppid() == parent:
        ready, _, _ = select.select([lifeline, woken], [], [], _LOOK_S)
        if lifeline in ready or os.waitpid(child, os.WNOHANG)[0]:
            break
        if woken in ready:
            os.read(woken, 64)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
