import os
import subprocess
import sys
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifylab import gate
from verifylab.gate import (
    CANONICAL_KEY_MIN_WIDTH,
    KILL_SWITCH_VARIABLE,
    MIN_WIDTH_VARIABLE,
    Gate,
    canonical_assignment,
    canonical_key_min_width,
    canonical_verify_key_enabled,
)

USIZE_MAX = 2**64 - 1


def min_width(text):
    return Gate.from_env({MIN_WIDTH_VARIABLE: text}).min_width


def rust_usize(text):
    """`text.trim().parse::<usize>()` a character at a time; None for an Err."""
    white = [chr(c) for c in (*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B))]
    white += [chr(c) for c in (0x2028, 0x2029, 0x202F, 0x205F, 0x3000)]
    while text and text[0] in white:
        text = text[1:]
    while text and text[-1] in white:
        text = text[:-1]
    if text[:1] == "+":
        text = text[1:]
    value = 0
    for character in text:
        if not "0" <= character <= "9":
            return None
        value = 10 * value + ord(character) - ord("0")
    return value if text and value <= USIZE_MAX else None


def test_the_default_gate_opens_at_eight():
    assert CANONICAL_KEY_MIN_WIDTH == 8
    assert [Gate().canonical(width) for width in (0, 1, 7, 8, 9, 32)] == [False] * 3 + [True] * 3


@given(st.integers(0, 40), st.booleans(), st.integers(0, 40))
def test_the_kill_switch_dominates_and_the_width_decides(least, enabled, width):
    assert Gate(least, enabled).canonical(width) is (enabled and width >= least)


def test_zero_is_always_and_a_huge_width_is_never():
    assert Gate(0).canonical(0) and Gate(0).canonical(1)
    assert not any(Gate(USIZE_MAX).canonical(width) for width in range(100))
    assert not Gate(0, enabled=False).canonical(10**6)


@pytest.mark.parametrize("value", ["", "0", "1", "false", " ", "\udcff"])
def test_the_kill_switch_counts_by_presence(value):
    assert Gate.from_env({KILL_SWITCH_VARIABLE: value}) == Gate(enabled=False)


def test_an_empty_environment_gives_the_defaults():
    assert Gate.from_env({}) == Gate() == Gate(CANONICAL_KEY_MIN_WIDTH, True)


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("4", 4),
        ("+4", 4),
        (" \t4\r\n", 4),
        ("\u3000\xa04\x85\u2028", 4),
        ("0", 0),
        ("-0", 8),
        ("-4", 8),
        ("0004", 4),
        ("+" + "0" * 6000 + "4", 4),
        ("4" * 6000, 8),
        (str(USIZE_MAX), USIZE_MAX),
        (str(USIZE_MAX + 1), 8),
        ("", 8),
        ("  ", 8),
        ("+", 8),
        ("++4", 8),
        ("+ 4", 8),
        ("4 4", 8),
        ("1_0", 8),
        ("4.0", 8),
        ("4e0", 8),
        ("0x4", 8),
        ("\uff14", 8),
        ("\u0664", 8),
        ("4\x00", 8),
        ("\x1c4", 8),
        ("4\x1f", 8),
        ("\u180e4", 8),
        ("\u200b4", 8),
        ("\ufeff4", 8),
        ("\udc804", 8),
        ("4\udcff", 8),
    ],
)
def test_the_width_parses_as_rust_does(text, width):
    assert min_width(text) == width


def test_white_space_is_unicodes_and_not_pythons():
    taken_off = {c for c in map(chr, range(0x10000)) if min_width(c + "3" + c) == 3}
    assert len(taken_off) == 25
    assert taken_off == {c for c in map(chr, range(0x10000)) if c.isspace()} - set(
        "\x1c\x1d\x1e\x1f"
    )


@given(
    st.text("0123456789+-_ \t\x1c\x85\u3000\u200b٣", max_size=8) | st.integers(0, 2**66).map(str)
)
def test_the_width_parses_as_a_slow_reading_of_rust(text):
    parsed = rust_usize(text)
    assert min_width(text) == (8 if parsed is None else parsed)


def test_numpy_numbers_are_stored_as_python_ones():
    made = Gate(np.int32(4), np.bool_(True))
    assert made == Gate(4) and type(made.min_width) is int and type(made.enabled) is bool
    assert made.canonical(np.uint8(4)) is True


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Gate(-1), ValueError, "min_width must be 0 or more, got -1"),
        (lambda: Gate(True), TypeError, "min_width must be an integer, got True"),
        (lambda: Gate(8.0), TypeError, "min_width must be an integer, got 8.0"),
        (lambda: Gate("8"), TypeError, "min_width must be an integer, got '8'"),
        (lambda: Gate(8, 1), TypeError, "enabled must be True or False, got 1"),
        (lambda: Gate().canonical(-2), ValueError, "width must be 0 or more, got -2"),
        (lambda: Gate().canonical(True), TypeError, "width must be an integer, got True"),
        (lambda: Gate().canonical(8.0), TypeError, "width must be an integer, got 8.0"),
    ],
)
def test_errors_name_the_thing_and_the_value(make, error, message):
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value) == message


def test_a_gate_is_frozen_and_hashable():
    with pytest.raises(FrozenInstanceError):
        Gate().min_width = 3
    assert {Gate(): 1}[Gate(8, True)] == 1


@pytest.fixture
def fresh_process(monkeypatch):
    """Forget what was read, before the test and after it."""
    monkeypatch.delenv(KILL_SWITCH_VARIABLE, raising=False)
    monkeypatch.delenv(MIN_WIDTH_VARIABLE, raising=False)

    def forget():
        gate.canonical_verify_key_enabled.cache_clear()
        gate.canonical_key_min_width.cache_clear()

    forget()
    yield monkeypatch
    forget()


def test_the_environment_is_read_once(fresh_process):
    fresh_process.setenv(MIN_WIDTH_VARIABLE, "4")
    assert (canonical_key_min_width(), canonical_verify_key_enabled()) == (4, True)
    fresh_process.setenv(MIN_WIDTH_VARIABLE, "16")
    fresh_process.setenv(KILL_SWITCH_VARIABLE, "")
    assert (canonical_key_min_width(), canonical_verify_key_enabled()) == (4, True)
    assert [canonical_assignment(width) for width in (3, 4)] == [False, True]


def test_the_kill_switch_of_the_process(fresh_process):
    fresh_process.setenv(KILL_SWITCH_VARIABLE, "0")
    assert canonical_verify_key_enabled() is False
    assert not canonical_assignment(32)
    with pytest.raises(ValueError, match="width must be 0 or more, got -1"):
        canonical_assignment(-1)


@pytest.mark.skipif(os.name != "posix", reason="environments hold bytes only on POSIX")
def test_a_value_that_is_no_utf8_gives_the_default():
    environ = {**os.environb, MIN_WIDTH_VARIABLE.encode(): b"4\xff"}
    code = "from verifylab import gate; print(gate.canonical_key_min_width())"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, check=True
    )
    assert done.stdout.strip() == b"8"
