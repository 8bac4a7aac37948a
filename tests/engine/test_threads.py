"""Thread choice: a busy machine must not make a race ten times as slow, and an idle one must use all its cores."""

import torch

from engine.session import threads
from tests.helpers.tiny import prepared


def test_what_was_chosen_is_what_torch_uses(monkeypatch):
    """A race would run with another number of threads than its fingerprint says."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert threads.settle(prepared("qwen3", torch.float32)) == torch.get_num_threads() in (1, 2)
    finally:
        torch.set_num_threads(before)


def test_a_stalling_machine_gets_one_thread_fewer(monkeypatch):
    """Barriers that stall would go unnoticed: a step that is slow with all threads must be measured so."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    extend = threads.StaticTarget.extend

    def stalling(self, token_ids, num_logits, width=None):
        if torch.get_num_threads() == 2:
            threads.time.sleep(0.05)
        return extend(self, token_ids, num_logits, width)

    monkeypatch.setattr(threads.StaticTarget, "extend", stalling)
    try:
        torch.set_num_threads(2)
        assert threads.settle(prepared("qwen3", torch.float32)) == 1
    finally:
        torch.set_num_threads(before)


def test_a_wish_for_threads_is_respected(monkeypatch):
    """OMP_NUM_THREADS would be overruled silently."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(threads, "StaticTarget", None)
    assert threads.settle(prepared("qwen3", torch.float32)) == torch.get_num_threads()
