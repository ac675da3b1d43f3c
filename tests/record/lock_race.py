"""Many processes take one lock at the same instant, round after round: LOCK PROCESSES ROUNDS."""

import json
import multiprocessing
import socket
import sys
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

from pipeline.errors import StorageError
from pipeline.record import lock as module
from pipeline.record.lock import release, take


def race(lock: Path, number: int, rounds: int, together: Barrier, outcome: Path) -> None:
    judge = module.refuse_writer

    def judge_slowly(lock: Path) -> None:
        judge(lock)
        time.sleep(0.01 * number)

    # so that what was judged can have changed before it is acted upon
    module.refuse_writer = judge_slowly
    for turn in range(rounds):
        together.wait()
        said = ""
        try:
            take(lock)
        except StorageError as error:
            said = str(error)
        with outcome.open("a") as file:
            file.write(json.dumps([turn, number, said]) + "\n")
        together.wait()
        if not said:
            release(lock)
            # of a process that is gone, for the next round
            gone = {"host": socket.gethostname(), "pid": 2**22 + 1}
            lock.write_text("" if turn % 3 == 2 else json.dumps(gone))


def main() -> None:
    lock, count, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    fork = multiprocessing.get_context("fork")
    together = fork.Barrier(count)
    outcome = lock.with_name("outcome")
    racers = [
        fork.Process(target=race, args=(lock, number, rounds, together, outcome))
        for number in range(count)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
        assert racer.exitcode == 0


if __name__ == "__main__":
    main()
