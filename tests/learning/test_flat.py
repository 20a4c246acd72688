"""Models as flat vectors: what is in them."""

import pytest
from torch import nn

import fedfa
from fedfa.learning.flat import Layout
from tests.helpers.ordinary_models import make_task
from tests.helpers.training import WithNorm, own_task


def test_buffers_are_sent_and_frozen_parameters_are_not() -> None:
    layout = Layout.of(WithNorm())
    assert not any(name.startswith("frozen") for name in layout.names)
    assert layout.names[layout.num_parameter_tensors :] == ("norm.running_mean", "norm.running_var")
    assert layout.length == layout.num_trainable + 6
    task = own_task(WithNorm)
    run = fedfa.simulate(
        fedfa.FedFaDelta(concurrency=3, window=2), task, stop=fedfa.Stop(updates=40), engine={"executor": "batched"}
    )
    assert (run.model[-3:] > 0).all()  # the variances
    assert run.best_accuracy > 0.5


def test_a_lazy_model_is_named() -> None:
    with pytest.raises(fedfa.ConfigError, match="model: weight has no shape yet; run a batch through the model"):
        make_task("vector", lambda: nn.LazyLinear(3)).initial(0)
