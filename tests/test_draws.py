"""Philox 4x32-10: the library's known answers, the compiled twin, draws that no batch shifts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verifylab import fastpath
from verifylab.draws import MULTIPLIERS, ROUNDS, WEYL, philox4x32, request_words

#: kat_vectors of Random123, philox4x32 with 10 rounds: counter, key, words.
KNOWN = [
    ([0x00000000] * 4, [0x00000000] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]
U32 = st.integers(0, 2**32 - 1)
REQUEST = st.integers(0, 2**64 - 1)
SEED = st.integers(0, 2**64 - 1)


def plain_philox(counter, key):
    """The published round in Python integers."""
    c, k = list(counter), list(key)
    for r in range(ROUNDS):
        if r:
            k = [(word + weyl) % 2**32 for word, weyl in zip(k, WEYL, strict=True)]
        high0, low0 = divmod(MULTIPLIERS[0] * c[0], 2**32)
        high1, low1 = divmod(MULTIPLIERS[1] * c[2], 2**32)
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0]
    return c


def compiled_philox(counter, key):
    return [int(w) for w in fastpath._philox(*(np.uint64(w) for w in (*counter, *key)))]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers(counter, key, words):
    assert philox4x32(np.array(counter), tuple(key)).tolist() == words
    assert plain_philox(counter, key) == words
    assert compiled_philox(counter, key) == words


@given(st.lists(U32, min_size=4, max_size=4), st.tuples(U32, U32))
def test_all_three_forms_agree(counter, key):
    words = plain_philox(counter, key)
    assert philox4x32(np.array(counter, np.uint64), key).tolist() == words
    assert compiled_philox(counter, key) == words


def test_many_counters_at_once_are_the_same_as_one_by_one():
    counters = np.random.default_rng(1).integers(0, 2**32, (3, 5, 4), np.uint64)
    together = philox4x32(counters, (7, 9))
    assert together.shape == (3, 5, 4)
    assert together.max() < 2**32
    for i in np.ndindex(3, 5):
        assert (together[i] == philox4x32(counters[i], (7, 9))).all()


@given(
    SEED,
    st.lists(st.tuples(REQUEST, U32), min_size=1, max_size=9, unique=True),
    st.integers(1, 8),
    st.randoms(use_true_random=False),
)
def test_words_know_nothing_of_the_batch(seed, tokens, drafts, random):
    """Common random numbers: the same token of the same request, whoever is in the batch."""

    def words(batch, count):
        requests = np.array([r for r, _ in batch], np.uint64)
        return request_words(seed, requests, np.array([p for _, p in batch]), count)

    whole = dict(zip(tokens, words(tokens, drafts), strict=True))
    shuffled = random.sample(tokens, random.randint(1, len(tokens)))
    for token, got in zip(shuffled, words(shuffled, drafts), strict=True):
        assert (got == whole[token]).all()
    for token, got in zip(shuffled, words(shuffled, 8), strict=True):
        assert (got[:drafts] == whole[token]).all()


def test_words_are_the_documented_counters():
    seed, request, position = 0x0123456789ABCDEF, 0xFEDCBA9876543210, 77
    words = request_words(seed, np.array([request], np.uint64), np.array([position]), 5)
    assert words.shape == (1, 5, 2)
    stream = []
    for block in range(3):
        counter = [position, request & 0xFFFFFFFF, request >> 32, block]
        stream += plain_philox(counter, [seed & 0xFFFFFFFF, seed >> 32])
    assert words.ravel().tolist() == stream[:10]


def test_no_two_tokens_share_their_words():
    requests, positions, seeds = np.arange(40), np.arange(40), range(5)
    seen = set()
    for seed in seeds:
        grid = np.array([(r, p) for r in requests for p in positions])
        words = request_words(seed, grid[:, 0], grid[:, 1], 3)
        seen.update(map(bytes, words.reshape(len(grid), -1)))
    assert len(seen) == 40 * 40 * 5


def test_words_are_uniform():
    words = request_words(3, np.arange(20_000), np.zeros(20_000, int), 8).reshape(-1, 16)
    share = words / 2**32
    # 20,000 uniforms: the mean's standard error is 0.0020, the variance's 0.0005.
    assert np.abs(share.mean(0) - 0.5).max() < 0.01
    assert np.abs(share.var(0) - 1 / 12).max() < 0.003
    correlation = np.corrcoef(share.T) - np.eye(16)
    assert np.abs(correlation).max() < 0.04


@settings(max_examples=30)
@given(SEED, REQUEST, U32, st.integers(1, 8))
def test_the_compiled_draw_reads_the_same_words(seed, request, position, drafts):
    """Tables that show their own indices: score and acceptance name the bin and the word."""
    words = request_words(seed, np.array([request], np.uint64), np.array([position]), drafts)[0]
    bins = (words[:, 0] >> np.uint64(20)).astype(int)
    log_reported = -np.arange(8 * 4096, dtype=float).reshape(8, 4096)
    accept_below = np.zeros((8, 4096), np.uint64)
    accept_below[np.arange(drafts), bins] = words[:, 1] + np.uint64(1)
    last = drafts - 1
    accept_below[last, bins[last]] = words[last, 1]  # one too low: the last draft is refused
    scores = np.zeros(8)
    length = fastpath._draw(
        np.uint64(seed), np.uint64(request), np.uint64(position), drafts, log_reported,
        accept_below, scores,
    )  # fmt: skip
    assert length == drafts - 1
    assert scores[:drafts].tolist() == np.cumsum(log_reported[np.arange(drafts), bins]).tolist()


def test_an_empty_batch_has_no_words():
    none = np.zeros(0, int)
    assert request_words(0, none, none, 3).shape == (0, 3, 2)
