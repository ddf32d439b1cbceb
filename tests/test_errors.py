import inspect
import pickle
import re

import pytest

from torchneuron import errors
from torchneuron.errors import (
    ArgumentError,
    ConfigError,
    DeviceIndexError,
    ExpectationError,
    InstallError,
    NeuronError,
    StrictError,
    UnknownVariableError,
)

ALL = list(errors.by_code().values())


def test_message_has_code_on_its_first_line_and_hint_last() -> None:
    error = ConfigError("LNC has the value `3`\nallowed: 1 | 2", hint="unset it")
    assert str(error) == "LNC has the value `3` [NRN101]\nallowed: 1 | 2\n\nhint: unset it"


def test_message_without_hint_has_no_hint_line() -> None:
    assert str(DeviceIndexError("no device 9")) == "no device 9 [NRN110]"


def test_every_class_in_the_module_has_its_own_code() -> None:
    classes = [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, NeuronError)
    ]
    assert {error.code for error in classes} == set(errors.by_code())
    assert len(classes) == len(ALL)


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.code)
def test_page_of_every_code_says_symptom_why_and_fix(error: type[NeuronError]) -> None:
    page = errors.help_page(error.code.lower())
    assert page.startswith(f"{error.code} {error.__name__}\n")
    assert re.search(r"Symptom:.*Why:.*Fix:", page, re.DOTALL)


@pytest.mark.parametrize("error", [e for e in ALL if e is not NeuronError], ids=lambda e: e.code)
def test_tree_in_the_module_docstring_lists_every_class(error: type[NeuronError]) -> None:
    assert re.search(rf"\+-- {error.__name__} +{error.code} ", errors.__doc__ or "")


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (ConfigError, ValueError),
        (UnknownVariableError, ConfigError),
        (ArgumentError, ValueError),
        (DeviceIndexError, RuntimeError),
        (StrictError, RuntimeError),
        (ExpectationError, AssertionError),
        (InstallError, ImportError),
    ],
)
def test_errors_are_caught_as_the_builtin_that_users_expect(
    error: type[NeuronError], builtin: type[Exception]
) -> None:
    with pytest.raises(builtin):
        raise error("something")


def test_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(StrictError("no float64", hint="cast", category="dtype")))
    assert (str(error), error.category) == ("no float64 [NRN210]\n\nhint: cast", "dtype")


def test_unknown_code_names_the_near_one() -> None:
    with pytest.raises(ArgumentError, match=r"unknown error code `NRN1O1`.*NRN101") as caught:
        errors.help_page("NRN1O1")
    assert "did you mean `NRN" in caught.value.hint


def test_suggestion_is_empty_for_something_far() -> None:
    assert errors.suggestion("zebra", ["alpha", "beta"]) == ""
    assert errors.suggestion("alpa", ["alpha", "beta"]) == "did you mean `alpha`?"
