"""Ends what a test run leaves behind, however it ended: its processes, then its files."""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

# Every process that a run starts inherits the name of the run's folder, or works below it.
MARK = "TEST_RUN_FOLDER"


def clean_up_after_this_process(folder: Path) -> None:
    """Starts a process that waits for the end of this one, which closes its standard input."""
    command = [sys.executable, __file__, str(folder)]
    unmarked = {name: value for name, value in os.environ.items() if name != MARK}
    subprocess.Popen(command, stdin=subprocess.PIPE, env=unmarked, start_new_session=True)


def _belongs_to(process: psutil.Process, folder: str) -> bool:
    with suppress(psutil.Error):
        return process.environ().get(MARK) == folder or process.cwd().startswith(folder)
    return False


def _end_processes(folder: str) -> None:
    marked = [one for one in psutil.process_iter() if _belongs_to(one, folder)]
    below: list[psutil.Process] = []
    for process in marked:
        with suppress(psutil.Error):
            below += process.children(recursive=True)
    for process in {*marked, *below}:
        with suppress(psutil.Error):
            process.kill()


if __name__ == "__main__":
    sys.stdin.read()
    _end_processes(sys.argv[1])
    shutil.rmtree(sys.argv[1], ignore_errors=True)
