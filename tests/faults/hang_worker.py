"""One of two ranks of a toy training in which one fails: RANK STEP WHERE ACTION TIMEOUT SHARED."""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist

from pipeline.parallel.parent import die_with_parent
from pipeline.training.fit import fit
from pipeline.training.start import build_decoder
from tests.distributed.toy import ToySequences, toy_config
from tests.evaluate.test_score import toy_documents
from tests.faults import inject


def main() -> None:
    rank, step, where, action, timeout, shared = sys.argv[1:7]
    die_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    config = toy_config("rope", sequence_parallel=int(shared), hang_timeout=float(timeout))
    failing = inject.fail_at(int(rank), int(step), where, getattr(inject, action))
    module = failing(config, build_decoder(config))
    fit(config, ToySequences(), toy_documents(), write=print, name="toy", module=module)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
