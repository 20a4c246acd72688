"""What is used of torch beyond its public interface is still there, and does what we need of it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from fedfa.learning import private_torch

CAN_COMPILE = bool(shutil.which("g++") or shutil.which("clang++"))
CHILDREN = Path("/proc/thread-self/children")
"""The processes that a process has started."""


def test_base_classes_cover_the_modules_we_mean() -> None:
    assert all(isinstance(one, private_torch.Dropout) for one in (nn.Dropout(0.3), nn.Dropout2d(), nn.AlphaDropout()))
    assert nn.Dropout(0.3).p == 0.3
    norms = nn.BatchNorm1d(2), nn.BatchNorm2d(2), nn.InstanceNorm2d(2, track_running_stats=True)
    assert all(isinstance(one, private_torch.NormWithStatistics) for one in norms)
    assert not isinstance(nn.LayerNorm(2), private_torch.NormWithStatistics)
    assert norms[0].momentum == 0.1


def test_transformations_are_seen() -> None:
    seen = []

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append((private_torch.is_batched(x), private_torch.is_transformed(x)))
        return x.sum()

    look(torch.ones(3))
    torch.func.vmap(look)(torch.ones(2, 3))
    torch.func.grad(look)(torch.ones(3))
    assert seen == [(False, False), (True, True), (False, True)]


def test_a_modules_own_tensors_can_be_replaced() -> None:
    norm = nn.BatchNorm1d(2)
    parameters, buffers = private_torch.own_tensors(norm)
    assert list(parameters) == ["weight", "bias"]
    assert "running_mean" in buffers
    buffers["running_mean"] = torch.full((2,), 7.0)
    assert norm.running_mean is buffers["running_mean"]


def test_dispatched_operations_are_seen_with_names_tags_and_leaves() -> None:
    calls = []

    class Seen(private_torch.TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            assert isinstance(func, private_torch.OpOverload)
            leaves = len(private_torch.tree_leaves((args, kwargs or {})))
            looks = torch.Tag.data_dependent_output in func.tags
            calls.append((private_torch.name_of(func), leaves, func.is_view, looks))
            return func(*args, **(kwargs or {}))

    with Seen():
        float(torch.ones(2).mul(3.0).view(1, 2).sum())
    assert (("aten", "mul"), 2, False, False) in calls
    assert (("aten", "view"), 3, True, False) in calls
    assert (("aten", "_local_scalar_dense"), 1, False, True) in calls


def test_recording_does_not_import_torchs_compiler() -> None:
    program = (
        "import sys, torch; from fedfa.executors.capture import capture; "
        "capture(lambda x: x.relu() + 1, torch.ones(3)); assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_stack_does_not_import_torchs_compiler() -> None:
    """But for the parts that ``torch.func.grad`` imports by itself."""
    program = (
        "import sys; from fedfa.executors.stack import Stack; from fedfa.learning.data_task import named_task; "
        "Stack(named_task('digits', 0), 0, 0.0); assert 'torch._inductor.compile_fx' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.skipif(not CAN_COMPILE, reason="needs a C++ compiler")
def test_functions_are_compiled_for_inputs_of_any_length() -> None:
    total = torch.zeros(3)
    compiled = private_torch.compile_graph(lambda rows: total.add_(rows.sum(0)), torch.ones(4, 3))
    for length in (4, 7, 2):
        compiled(torch.ones(length, 3))
    assert total.tolist() == [13.0] * 3


@pytest.mark.skipif(not CAN_COMPILE, reason="needs a C++ compiler")
@pytest.mark.skipif(not CHILDREN.exists(), reason="needs Linux's /proc")
def test_compiling_leaves_no_processes() -> None:
    program = (
        "import torch; from fedfa.learning.private_torch import compile_graph; "
        "compile_graph(lambda rows: rows.mul_(2), torch.ones(4, 3)); "
        f"assert open('{CHILDREN}').read().split() == []"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "4"})


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_fused_adamw_is_torchs_adamw(weight_decay: float) -> None:
    torch.manual_seed(0)
    start, gradients = torch.randn(20), torch.randn(4, 20)
    parameter = nn.Parameter(start.clone())
    optimizer = torch.optim.AdamW([parameter], lr=0.05, weight_decay=weight_decay)
    ours, first, second, count = start.clone(), torch.zeros(20), torch.zeros(20), torch.zeros(1)
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
        count += 1
        private_torch.fused_adamw(
            ours, gradient, first, second, count, lr=0.05, betas=(0.9, 0.999), weight_decay=weight_decay, epsilon=1e-8
        )
    torch.testing.assert_close(ours, parameter.detach())


def test_descend_steps_all_parameters() -> None:
    params = [torch.ones(2), torch.full((3,), 2.0)]
    private_torch.descend(params, [torch.ones(2), torch.ones(3)], lr=0.5)
    assert [param.tolist() for param in params] == [[0.5, 0.5], [1.5, 1.5, 1.5]]


def test_operations_can_run_as_they_are_written() -> None:
    """Optimised, ``addmm`` becomes a product and a sum, which rounds once more."""
    generator = torch.Generator().manual_seed(0)
    bias, left, right = (torch.randn(*shape, generator=generator) for shape in ((84,), (4, 400), (400, 84)))
    source = (
        "def f(a: Tensor, b: Tensor, c: Tensor):\n    return torch.ops.aten.sigmoid(torch.ops.aten.addmm(a, b, c))\n"
    )
    function = torch.jit.CompilationUnit(source).f
    with private_torch.as_written():
        for _ in range(3):
            assert torch.equal(function(bias, left, right), torch.addmm(bias, left, right).sigmoid())


def test_the_cpu_is_seeded_as_by_torch_itself() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        expected = torch.rand(3)
        private_torch.seed_cpu(5)
        assert torch.equal(torch.rand(3), expected)
