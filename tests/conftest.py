"""One thread per test process: sizes are tiny, and threads that wait for each other are slow."""

import torch


def pytest_configure() -> None:
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
