"""The rule once more, one batch at a time in plain Python: slow, and written from the prose.

It shares nothing with verifylab but the meaning of NO_SLOT, which it takes as None.
"""


def oracle(slots, depths, canonical, no_slot=None):
    """(order, assigned) as lists."""
    beyond = 10**30
    who = [
        (beyond if s is None or s == no_slot else s, k, i)
        for i, (s, k) in enumerate(zip(slots, depths, strict=True))
    ]
    if canonical:
        who = sorted(who, key=lambda w: (w[0], w[2]))
        rows = sorted(depths)[::-1]
    else:
        who = sorted(who, key=lambda w: (-w[1], w[0], w[2]))
        rows = [w[1] for w in who]
    return [w[2] for w in who], rows


def oracle_key(pairs, wy_tables_null):
    """The key's bytes, a word at a time."""
    words = [word for pair in pairs for word in pair] + [
        0xFFFFFFFE if wy_tables_null else 0xFFFFFFFF
    ]
    return b"".join(word.to_bytes(4, "little") for word in words)


def oracle_batches(slots, depths, canonical, no_slot=None):
    """(order, assigned) of a two-axis array, as lists of lists."""
    pairs = [
        oracle(s, k, canonical, no_slot)
        for s, k in zip(slots.tolist(), depths.tolist(), strict=True)
    ]
    return [order for order, _ in pairs], [assigned for _, assigned in pairs]
