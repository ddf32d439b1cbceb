"""Random numbers: CPU's numbers for a seed, states, forks, graph-safe generators."""

import copy
import pickle
import warnings

import pytest
import torch


def draw(device: str = "neuron") -> torch.Tensor:
    return torch.randn(5, device=device).cpu()


def test_same_numbers_as_the_cpu_for_a_seed() -> None:
    torch.manual_seed(7)
    on_cpu = [draw("cpu"), torch.rand(3), torch.randint(9, (4,)), torch.randperm(6)]
    torch.manual_seed(7)
    on_neuron = [
        draw(),
        torch.rand(3, device="neuron"),
        torch.randint(9, (4,), device="neuron"),
        torch.randperm(6, device="neuron"),
    ]
    for expected, found in zip(on_cpu, on_neuron, strict=True):
        assert torch.equal(expected, found.cpu())


def test_manual_seed_seeds_the_current_device_only() -> None:
    torch.neuron.manual_seed_all(1)
    with torch.neuron.device(1):
        torch.neuron.manual_seed(2)
        assert torch.neuron.initial_seed() == 2
    assert torch.neuron.initial_seed() == 1
    expected = torch.randn(5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(draw("neuron:0"), expected)
    assert not torch.equal(draw("neuron:1"), expected)


def test_drawing_on_the_device_leaves_the_cpu_generator_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    draw()
    assert torch.equal(torch.get_rng_state(), before)


def test_seed_and_seed_all_choose_new_seeds() -> None:
    torch.neuron.manual_seed_all(3)
    torch.neuron.seed()
    first = torch.neuron.initial_seed()
    assert first != 3
    torch.neuron.seed_all()
    seeds = {generator.initial_seed() for generator in torch.neuron.default_generators}
    assert len(seeds) == 1 and seeds != {first}


def test_state_is_a_cpu_byte_tensor_and_can_be_put_back() -> None:
    state = torch.neuron.get_rng_state()
    assert state.dtype == torch.uint8 and state.device.type == "cpu" and state.numel() == 5056
    first = draw()
    torch.neuron.set_rng_state(state)
    assert torch.equal(draw(), first)


def test_state_may_come_from_the_device_and_from_a_view() -> None:
    state = torch.neuron.get_rng_state("neuron:1")
    first = draw("neuron:1")
    torch.neuron.set_rng_state(state.neuron(), "neuron:1")
    assert torch.equal(draw("neuron:1"), first)


def test_states_of_all_devices() -> None:
    states = torch.neuron.get_rng_state_all()
    assert len(states) == torch.neuron.device_count()
    first = [draw(f"neuron:{index}") for index in range(len(states))]
    torch.neuron.set_rng_state_all(states)
    again = [draw(f"neuron:{index}") for index in range(len(states))]
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))


def test_a_wrong_state_is_refused() -> None:
    with pytest.raises(RuntimeError):
        torch.neuron.set_rng_state(torch.zeros(3, dtype=torch.uint8))


def test_default_generators_are_those_that_draw() -> None:
    generators = torch.neuron.default_generators
    assert [generator.device.index for generator in generators] == [0, 1, 2, 3]
    generators[0].manual_seed(11)
    first = draw()
    torch.neuron.manual_seed(11)
    assert torch.equal(draw(), first)
    assert torch.neuron._get_generator(torch.device("neuron", 2)) == generators[2]


def test_own_generator_draws_apart() -> None:
    generator = torch.Generator(device="neuron").manual_seed(5)
    state = torch.neuron.get_rng_state()
    first = torch.randn(4, device="neuron", generator=generator)
    assert torch.equal(torch.neuron.get_rng_state(), state)
    assert torch.equal(first.cpu(), torch.randn(4, generator=torch.Generator().manual_seed(5)))
    with pytest.raises(RuntimeError, match="device"):
        torch.randn(4, device="neuron", generator=torch.Generator())


def test_generator_is_graph_safe() -> None:
    generator = torch.Generator(device="neuron").manual_seed(5)
    twin = generator.clone_state()
    state = generator.graphsafe_get_state()
    first = torch.rand(3, device="neuron", generator=generator)
    assert torch.equal(torch.rand(3, device="neuron", generator=twin), first)
    other = torch.Generator(device="neuron").manual_seed(6)
    other.graphsafe_set_state(state)
    following = torch.rand(3, device="neuron", generator=other)
    generator.manual_seed(5)
    torch.rand(3, device="neuron", generator=generator)
    assert torch.equal(torch.rand(3, device="neuron", generator=generator), following)


def test_generators_are_copied_and_pickled_without_our_names() -> None:
    generator = torch.Generator(device="neuron:1").manual_seed(5)
    data = pickle.dumps(generator)
    assert b"torchneuron" not in data
    for again in (pickle.loads(data), copy.deepcopy(generator)):
        assert again.device == generator.device
        assert torch.equal(again.get_state(), generator.get_state())


@pytest.mark.parametrize("arguments", [{"device_type": "neuron"}, {"devices": [0, 2]}, {}])
def test_fork_rng_restores_every_device_without_a_warning(arguments: dict[str, object]) -> None:
    states = [torch.get_rng_state(), *torch.neuron.get_rng_state_all()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.random.fork_rng(**arguments):
            torch.manual_seed(99)
            draw()
            if arguments.get("devices"):
                torch.neuron.set_rng_state(states[2], 1)
                torch.neuron.set_rng_state(states[4], 3)
    after = [torch.get_rng_state(), *torch.neuron.get_rng_state_all()]
    assert all(torch.equal(one, two) for one, two in zip(states, after, strict=True))


def test_negative_and_large_seeds_are_taken_as_on_the_cpu() -> None:
    for seed in (-1, 2**64 - 1, -(2**63)):
        torch.manual_seed(seed)
        expected = draw("cpu")
        torch.neuron.manual_seed_all(seed)
        assert torch.equal(draw(), expected)


def test_seeding_before_first_use_takes_effect_and_uses_nothing(script) -> None:
    script(
        """
        import torch
        torch.manual_seed(3)
        expected = torch.randn(4)
        torch.manual_seed(3)
        assert not torch.neuron.is_initialized()
        assert torch.equal(torch.randn(4, device="neuron:2").cpu(), expected)
        assert torch.neuron._is_in_bad_fork() is False
        """
    )
