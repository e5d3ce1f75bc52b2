import os

# before any library that could look for a hub is imported
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")

import pytest
import torch


@pytest.fixture(scope="session")
def tiny():
    """The embedded policy; tests that change weights load their own."""
    from support.policy import load_policy

    return load_policy("tiny")


@pytest.fixture(autouse=True)
def global_random_state_is_left_alone():
    """Nothing in the project may draw from, or seed, the global generator."""
    before = torch.random.get_rng_state()
    yield
    torch.random.set_rng_state(before)
