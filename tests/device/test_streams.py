"""Streams and events: identities, contexts, timing, and the errors of misuse."""

import copy
import pickle
import threading
import time

import pytest
import torch

from torchneuron.errors import ArgumentError


def test_a_new_stream_is_none_of_the_others() -> None:
    one, two = torch.neuron.Stream(), torch.neuron.Stream()
    assert isinstance(one, torch.Stream)
    assert len({one, two, torch.neuron.default_stream()}) == 3
    assert one.device == torch.device("neuron", 0)
    assert torch.neuron.Stream("neuron:2", priority=-1).device.index == 2


def test_a_stream_can_be_named_by_its_ids() -> None:
    one = torch.neuron.Stream(1)
    again = torch.neuron.Stream(
        stream_id=one.stream_id, device_index=one.device_index, device_type=one.device_type
    )
    assert again == one and hash(again) == hash(one)
    assert torch.neuron.Stream(1, stream_id=one.stream_id) == one


def test_stream_context_switches_stream_and_device_and_restores_both() -> None:
    inner = torch.neuron.Stream(2)
    with torch.neuron.stream(inner):
        assert torch.neuron.current_device() == 2
        assert torch.neuron.current_stream() == inner
        assert isinstance(torch.neuron.current_stream(), torch.neuron.Stream)
        with torch.neuron.stream(None):
            assert torch.neuron.current_stream() == inner
    assert torch.neuron.current_device() == 0
    assert torch.neuron.current_stream(2) == torch.neuron.default_stream(2)


def test_one_stream_context_object_may_nest_in_itself() -> None:
    context = torch.neuron.stream(torch.neuron.Stream())
    with context, context:
        assert torch.neuron.current_stream() == context.stream
    assert torch.neuron.current_stream() == torch.neuron.default_stream()


def test_a_stream_is_a_context_itself() -> None:
    stream = torch.neuron.Stream()
    with stream:
        assert torch.neuron.current_stream() == stream
    assert torch.neuron.current_stream() == torch.neuron.default_stream()


@pytest.mark.parametrize("wrong", ["x", 3, torch.device("neuron")])
def test_what_is_no_stream_is_refused(wrong: object) -> None:
    for call in (torch.neuron.stream, torch.neuron.set_stream):
        with pytest.raises(ValueError, match=r"(?s)expected a stream of a neuron.*hint: "):
            call(wrong)


def test_a_block_that_is_not_open_cannot_be_left() -> None:
    for block in (torch.neuron.stream(torch.neuron.Stream()), torch.neuron.device(1)):
        with block:
            pass
        with pytest.raises(ValueError, match=r"(?s)not open.*hint: write `with"):
            block.__exit__(None, None, None)


def test_set_stream_holds_for_its_thread() -> None:
    stream = torch.neuron.Stream()
    torch.neuron.set_stream(stream)
    torch.neuron.set_stream(None)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.neuron.current_stream()))
    thread.start()
    thread.join()
    assert torch.neuron.current_stream() == stream
    assert seen == [torch.neuron.default_stream()]


def test_work_is_done_when_a_call_returns() -> None:
    stream = torch.neuron.Stream()
    assert stream.query()
    stream.synchronize()
    stream.wait_stream(torch.neuron.default_stream())
    event = stream.record_event()
    assert isinstance(event, torch.neuron.Event)
    stream.wait_event(event)
    assert event.query()
    assert stream.record_event(event) is event


def test_events_measure_time() -> None:
    start = torch.neuron.Event(enable_timing=True)
    end = torch.neuron.Event(enable_timing=True)
    start.record()
    time.sleep(0.02)
    end.record(torch.neuron.Stream())
    end.synchronize()
    assert 15 < start.elapsed_time(end) < 2000
    assert end.elapsed_time(start) == -start.elapsed_time(end)


def test_elapsed_time_needs_timing() -> None:
    start, end = torch.neuron.Event(), torch.neuron.Event()
    start.record()
    end.record()
    with pytest.raises(ValueError, match="enable_timing=True"):
        start.elapsed_time(end)


def test_elapsed_time_needs_both_events_recorded() -> None:
    start = torch.neuron.Event(enable_timing=True)
    end = torch.neuron.Event(enable_timing=True)
    start.record()
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(end)


def test_an_event_that_was_never_recorded_is_done() -> None:
    event = torch.neuron.Event()
    assert event.query()
    event.synchronize()
    event.wait()


def test_an_event_of_another_device_is_refused() -> None:
    event = torch.neuron.Event()
    event.record(torch.neuron.Stream(0))
    with pytest.raises(RuntimeError, match="device"):
        event.record(torch.neuron.Stream(1))


def test_interprocess_events_are_refused() -> None:
    with pytest.raises(ArgumentError, match="interprocess"):
        torch.neuron.Event(interprocess=True)


def test_plain_torch_streams_and_events_are_taken_too() -> None:
    stream = torch.Stream("neuron:0")
    with torch.neuron.stream(stream):
        assert torch.neuron.current_stream() == stream
    event = torch.Event("neuron", enable_timing=True)
    torch.neuron.Stream().record_event(event)
    torch.neuron.Stream().wait_event(event)


def test_tensors_take_note_of_streams() -> None:
    torch.ones(2, device="neuron").record_stream(torch.neuron.Stream())


def test_pickled_streams_name_no_module_of_ours() -> None:
    stream = torch.neuron.Stream(1)
    data = pickle.dumps(stream)
    assert b"torchneuron" not in data
    assert pickle.loads(data) == stream
    assert copy.deepcopy(stream) is stream and copy.copy(stream) is stream


def test_an_event_is_one_of_torch_on_our_device() -> None:
    event = torch.neuron.Event(enable_timing=True)
    assert type(event) is torch.Event and event.device.type == "neuron"
    assert isinstance(torch.Event("neuron"), torch.neuron.Event)
    assert not isinstance(torch.neuron.Stream(), torch.neuron.Event)


def test_texts_name_the_device() -> None:
    assert "neuron:1" in repr(torch.neuron.Stream(1))
    assert "neuron" in repr(torch.neuron.Event())
