"""One of two ranks that only turn round and round: TIMEOUT, and what is to happen half way."""

import sys
import time

import torch
import torch.distributed as dist

from pipeline.parallel.watch import HangWatch

TURNS, TURN = 20, 0.1


def main() -> None:
    timeout, event = float(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo")
    watch = HangWatch(timeout, "test")
    for turn in range(TURNS):
        dist.all_reduce(torch.ones(1))
        watch.beat(f"turn {turn}")
        time.sleep(TURN)
        if turn != TURNS // 2:
            continue
        print("half way", flush=True)
        if event == "rest":
            with watch.rest():
                time.sleep(2 * timeout if dist.get_rank() == 0 else 0.0)
                dist.barrier()
        elif event == "work" and dist.get_rank() == 0:
            time.sleep(2 * timeout)
        elif event == "beats" and dist.get_rank() == 0:
            for part in range(20):
                time.sleep(timeout / 10)
                watch.beat(f"part {part}")
    watch.stop()
    time.sleep(2 * timeout)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
