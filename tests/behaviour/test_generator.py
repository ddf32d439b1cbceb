"""The device draws the numbers that the CPU draws from the same seed."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from behaviour.subject import (
    DEVICE,
    SECOND,
    assert_runs_the_same,
    assert_same,
    with_gradients,
)

Draw = Callable[[str], torch.Tensor]

FACTORIES: dict[str, Draw] = {
    "rand": lambda d: torch.rand(3, 5, device=d),
    "rand_bfloat16": lambda d: torch.rand(40, dtype=torch.bfloat16, device=d),
    "rand_complex": lambda d: torch.rand(4, dtype=torch.complex64, device=d),
    "randn": lambda d: torch.randn(3, 5, device=d),
    "randn_long": lambda d: torch.randn(1000, device=d),
    "randn_half": lambda d: torch.randn(40, dtype=torch.float16, device=d),
    "randn_double": lambda d: torch.randn(17, dtype=torch.float64, device=d),
    "randn_complex": lambda d: torch.randn(4, dtype=torch.complex64, device=d),
    "randint": lambda d: torch.randint(-5, 70, (20,), device=d),
    "randint_int8": lambda d: torch.randint(9, (20,), dtype=torch.int8, device=d),
    "randperm": lambda d: torch.randperm(30, device=d),
    "rand_like": lambda d: torch.rand_like(torch.ones(4, device=d)),
    "randn_like": lambda d: torch.randn_like(torch.ones(4, 2, device=d).t()),
    "randint_like": lambda d: torch.randint_like(torch.ones(4, device=d), 3, 9),
    "normal": lambda d: torch.normal(torch.zeros(4, device=d), torch.ones(4, device=d)),
    "normal_size": lambda d: torch.normal(1.0, 2.0, (5,), device=d),
    "bernoulli": lambda d: torch.bernoulli(torch.full((20,), 0.3, device=d)),
    "bernoulli_p": lambda d: torch.ones(20, device=d).bernoulli(0.3),
    "poisson": lambda d: torch.poisson(torch.full((9,), 4.0, device=d)),
    "binomial": lambda d: torch.binomial(
        torch.full((9,), 10.0, device=d), torch.full((9,), 0.4, device=d)
    ),
    "multinomial": lambda d: torch.multinomial(torch.arange(1.0, 9, device=d), 4),
    "multinomial_again": lambda d: torch.multinomial(torch.ones(2, 5, device=d), 9, True),
    "standard_gamma": lambda d: torch._standard_gamma(torch.full((9,), 2.0, device=d)),
    "dirichlet": lambda d: torch._sample_dirichlet(torch.full((3, 4), 2.0, device=d)),
    "rand_out": lambda d: torch.rand(3, out=torch.empty(0, device=d)),
    "randn_out": lambda d: torch.randn(3, out=torch.empty(0, device=d)),
    "randint_out": lambda d: torch.randint(2, 9, (3,), out=torch.empty(3, device=d).long()),
    "normal_out": lambda d: torch.normal(0.0, 1.0, (3,), out=torch.empty(3, device=d)),
    "randperm_out": lambda d: torch.randperm(7, out=torch.empty(7, device=d).long()),
    "categorical": lambda d: torch.distributions.Categorical(torch.ones(4, device=d)).sample((6,)),
    "von_mises": lambda d: torch.distributions.VonMises(
        torch.zeros(3, device=d), torch.ones(3, device=d)
    ).sample(),
}
SAMPLERS = {
    "uniform_": (-1.0, 3.0),
    "normal_": (2.0, 0.5),
    "exponential_": (1.5,),
    "cauchy_": (),
    "log_normal_": (),
    "geometric_": (0.4,),
    "bernoulli_": (0.6,),
    "random_": (3, 50),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_a_factory_gives_the_numbers_of_the_cpu(name: str) -> None:
    draw = FACTORIES[name]
    for seed in (0, 1234):
        torch.manual_seed(seed)
        expected = [draw("cpu"), draw("cpu")]
        torch.manual_seed(seed)
        assert_same([draw(DEVICE), draw(DEVICE)], expected)
        torch.neuron.manual_seed_all(seed)
        assert_same(draw(SECOND), expected[0])


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_an_in_place_sampler_gives_the_numbers_of_the_cpu(name: str, dtype: torch.dtype) -> None:
    def draw(x: torch.Tensor) -> list[torch.Tensor]:
        torch.manual_seed(9)
        getattr(x, name)(*SAMPLERS[name])
        getattr(x[1:, ::2], name)(*SAMPLERS[name])
        return [x, getattr(torch.empty_like(x.t()), name)()] if name != "geometric_" else [x]

    assert_runs_the_same(draw, torch.zeros(5, 8, dtype=dtype))


INITIALIZERS = "uniform_ normal_ xavier_uniform_ kaiming_normal_ trunc_normal_ orthogonal_"


def test_initializers_give_the_numbers_of_the_cpu() -> None:
    def initialize(x: torch.Tensor) -> list[torch.Tensor]:
        torch.manual_seed(1)
        for name in INITIALIZERS.split():
            getattr(nn.init, name)(x)
        return [x]

    assert_runs_the_same(initialize, torch.zeros(6, 4))
    torch.manual_seed(2)
    expected = [p.detach() for p in nn.LSTM(3, 4).parameters()]
    torch.manual_seed(2)
    assert_same([p.detach() for p in nn.LSTM(3, 4, device=DEVICE).parameters()], expected)


DROPOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.3),
    "dropout_all": lambda x: F.dropout(x, 1.0),
    "dropout_none": lambda x: F.dropout(x, 0.0),
    "alpha": lambda x: F.alpha_dropout(x, 0.3, training=True),
    "feature": lambda x: F.dropout1d(x, 0.5),
    "feature_alpha": lambda x: F.feature_alpha_dropout(x, 0.5, training=True),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "gumbel": lambda x: F.gumbel_softmax(x, hard=True),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.4),
    "pooling": lambda x: F.fractional_max_pool2d(x[None], 2, output_size=3),
}


@pytest.mark.parametrize("name", DROPOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_dropout_and_its_gradient_equal_the_cpu(name: str, dtype: torch.dtype) -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        torch.manual_seed(31)
        return [DROPOUTS[name](x), torch.rand(3, device=x.device)]

    x = torch.randn(4, 6, 8, dtype=dtype, requires_grad=True)
    _, (gradient,) = assert_runs_the_same(with_gradients(run), x)
    assert gradient is not None


def test_dropout_in_place_and_without_training() -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        torch.manual_seed(3)
        kept = F.dropout(x, 0.5, training=False)
        F.dropout(x, 0.5, inplace=True)
        F.dropout(x.t()[1:], 0.5, inplace=True)
        return [kept, x]

    assert_runs_the_same(run, torch.randn(5, 6))


def test_recurrent_dropout_equals_the_cpu() -> None:
    def run(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(6)
        return net(x)[0]

    for cls in (nn.LSTM, nn.GRU, nn.RNN):
        net = cls(4, 5, num_layers=2, dropout=0.5, batch_first=True, bidirectional=True)
        x = torch.randn(2, 6, 4, requires_grad=True)
        assert_runs_the_same(with_gradients(run), net, x)


def test_the_two_streams_are_independent() -> None:
    torch.manual_seed(0)
    expected = [torch.rand(3), torch.rand(3)]
    torch.manual_seed(0)
    first = torch.rand(3)
    torch.rand(100, device=DEVICE)
    assert torch.equal(torch.stack([first, torch.rand(3)]), torch.stack(expected))
    torch.manual_seed(0)
    torch.rand(50)
    torch.rand(7, device=SECOND)
    assert torch.equal(torch.rand(3, device=DEVICE).cpu(), expected[0])


def test_device_draws_leave_the_cpu_stream_alone() -> None:
    state = torch.get_rng_state()
    used = []
    x = torch.ones(4, 6, 8, device=DEVICE)
    calls: dict[str, Callable[[], object]] = {
        **{name: lambda draw=draw: draw(DEVICE) for name, draw in FACTORIES.items()},
        **{name: lambda n=name: getattr(x, n)(*SAMPLERS[n]) for name in SAMPLERS},
        **{name: lambda drop=drop: drop(x.float()) for name, drop in DROPOUTS.items()},
    }
    for name, call in calls.items():
        call()
        if not torch.equal(torch.get_rng_state(), state):
            used.append(name)
            torch.set_rng_state(state)
    assert not used


def test_fork_rng_gives_the_stream_back() -> None:
    torch.manual_seed(8)
    torch.rand(5, device=DEVICE)
    expected = torch.rand(5, device=DEVICE)
    torch.manual_seed(8)
    torch.rand(5, device=DEVICE)
    with torch.random.fork_rng(devices=[0], device_type=DEVICE):
        torch.manual_seed(99)
        torch.rand(40, device=DEVICE)
    assert torch.equal(torch.rand(5, device=DEVICE), expected)


def test_states_are_bytes_on_the_cpu_and_checked() -> None:
    state = torch.neuron.get_rng_state()
    assert state.dtype == torch.uint8 and state.device.type == "cpu"
    second = torch.neuron.default_generators[1]
    assert torch.equal(torch.neuron.get_rng_state(1), second.get_state())
    drawn = torch.rand(3, device=DEVICE)
    torch.neuron.set_rng_state(state)
    assert torch.equal(torch.rand(3, device=DEVICE), drawn)
    with pytest.raises((RuntimeError, TypeError)):
        torch.neuron.set_rng_state(torch.zeros(3, dtype=torch.uint8))
    with pytest.raises((RuntimeError, TypeError)):
        torch.neuron.set_rng_state(state.float())


def test_graph_safe_states_share_and_switch() -> None:
    generator = torch.Generator(device=DEVICE).manual_seed(1)
    state = generator.graphsafe_get_state()
    twin = generator.clone_state()
    first = torch.rand(3, generator=generator, device=DEVICE)
    generator.graphsafe_set_state(twin)
    assert torch.equal(torch.rand(3, generator=generator, device=DEVICE), first)
    generator.graphsafe_set_state(state)
    assert not torch.equal(torch.rand(3, generator=generator, device=DEVICE), first)


def test_seeding_never_configures_a_cpu_program(script: Callable[..., object]) -> None:
    script(
        """
        import torch

        torch.manual_seed(3)
        torch.seed()
        torch.random.fork_rng(devices=[]).__enter__()
        torch.manual_seed(3)
        assert not torch.neuron.is_initialized()
        x = torch.rand(4, device="neuron")
        torch.manual_seed(3)
        assert torch.equal(x.cpu(), torch.rand(4))
        assert torch.neuron.is_initialized()
        """
    )
