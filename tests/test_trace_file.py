"""Blocks, lines and warnings."""

from __future__ import annotations

import gzip
import io
import random
import time
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verifylab import trace_file
from verifylab.trace_file import Limits, Notes, blocks, hits, line_blocks


def test_gzip_members_padding_and_every_cut(tmp_path) -> None:
    text = b"line of text\n" * 50
    data = gzip.compress(text) + gzip.compress(text[:13]) + b"\0" * 20
    path = tmp_path / "a.gz"
    path.write_bytes(data)
    notes = Notes()
    assert b"".join(blocks(path, notes, 64)) == text + text[:13]
    assert notes.texts() == ()
    for cut in range(len(data) - 20):
        path.write_bytes(data[:cut])
        notes = Notes()
        got = b"".join(blocks(path, notes, 64))
        assert (text + text[:13]).startswith(got) or cut < 2
        whole_member = cut == len(gzip.compress(text))
        assert bool(notes.texts()) == (cut > 1 and not whole_member), cut


def test_a_bomb_is_left_alone(tmp_path) -> None:
    path = tmp_path / "bomb.gz"
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb") as file:
        for _ in range(64):
            file.write(b"\0" * (1 << 20))
    path.write_bytes(packed.getvalue())
    for limits in (Limits(unpacked_bytes=1 << 22), Limits(ratio_from_bytes=1 << 22)):
        notes = Notes()
        got = sum(map(len, blocks(path, notes, 1 << 20, limits)))
        assert (1 << 22) <= got <= (1 << 22) + (1 << 20)
        assert "growing" in notes.texts()[0]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=9), max_size=30), st.integers(1, 40))
def test_line_blocks_are_the_file_cut_at_line_feeds(tmp_path_factory, lines, size) -> None:
    data = b"\n".join(line.replace(b"\n", b"") for line in lines)
    if data.startswith(b"\x1f\x8b"):
        return
    path = tmp_path_factory.mktemp("f") / "a"
    path.write_bytes(data)
    got = list(line_blocks(path, Notes(), size))
    assert b"".join(b.data for b in got) == data
    for block in got:
        assert data[block.offset :].startswith(block.data)
        assert block.line == 1 + data.count(b"\n", 0, block.offset)
    assert all(b.data.endswith(b"\n") for b in got[:-1])


def test_the_rest_of_a_long_line_is_skipped(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(trace_file, "MAX_LINE", 100)
    path = tmp_path / "a"
    path.write_bytes(b"one\n" + b"x" * 1000 + b"y\nthree\n")
    notes = Notes()
    got = list(line_blocks(path, notes, 64))
    text = b"".join(b.data for b in got)
    assert text.startswith(b"one\nxxx") and text.endswith(b"\nthree\n") and b"y" not in text
    assert "line 2, offset 4: longer than 100 bytes" in notes.texts()[0]
    assert got[-1].line_at(got[-1].data.index(b"three")) == 3


def test_hits_are_all_of_them_in_order() -> None:
    assert hits(b"a-b-a-bb", (b"a", b"b")).tolist() == [[0, 0], [2, 1], [4, 0], [6, 1], [7, 1]]
    assert hits(b"", (b"a",)).shape == (0, 2)


def test_warnings_are_counted_beyond_the_first_few() -> None:
    notes = Notes()
    for i in range(9):
        notes.add("cut", f"line {i}")
    notes.more("cut", 3)
    notes.add("other", lambda: "words")
    assert notes.texts() == (
        *(f"line {i}" for i in range(5)), "and 7 more of this kind: cut", "words",
    )  # fmt: skip


def test_a_file_that_cannot_be_opened(tmp_path) -> None:
    with pytest.raises(trace_file.TraceError, match="no such file"):
        next(blocks(tmp_path / "x", Notes()))
    with pytest.raises(trace_file.TraceError, match="no such file"):
        next(blocks("a\0b", Notes()))
    with pytest.raises(trace_file.TraceError, match="not a regular file"):
        next(blocks("/dev/null", Notes()))


def test_text_of_a_foreign_file_cannot_reach_the_terminal_raw() -> None:
    assert trace_file.plain("a\x1b[31m\nb\0\u202e c") == "a?[31m b?? c"
    assert str(trace_file.TraceError("x\n\x1b[2J")) == "x ?[2J"
    assert len(trace_file.plain("y" * 10_000)) == 600


def lines_of(many: int) -> bytes:
    rng = random.Random(1)
    return b"".join(b"line %d of %d\n" % (i, rng.randrange(10**9)) for i in range(many))


@pytest.mark.parametrize("size", [64, 1000, 1 << 22])
def test_all_that_stands_before_gzip_damage_is_given(tmp_path, size) -> None:
    text, path = lines_of(20_000), tmp_path / "a.gz"
    whole = gzip.compress(text)
    for at in (len(whole) - 6, len(whole) - 2):  # the checksum, the length
        data = bytearray(whole)
        data[at] ^= 1
        path.write_bytes(data)
        notes = Notes()
        assert b"".join(blocks(path, notes, size)) == text
        assert notes.texts() == (
            f"offset {len(text):,} after decompression: the gzip data fails its checksum there; "
            "what came before is kept, some of it may be wrong",
        )
    inflate, cut = zlib.decompressobj(31), len(whole) * 9 // 10
    before = inflate.decompress(whole[:cut])
    path.write_bytes(whole[:cut] + b"\xff" * 100)  # a block of a type that there is not, or so
    notes = Notes()
    got = b"".join(blocks(path, notes, size))
    assert got.startswith(before) and len(got) < len(before) + 100 * 1032
    assert f"offset {len(got):,} after decompression: the gzip data is " in notes.texts()[0]
    path.write_bytes(whole + b"other")
    notes = Notes()
    assert b"".join(blocks(path, notes, size)) == text
    assert "what follows is no gzip data" in notes.texts()[0]


@settings(deadline=None)
@given(st.floats(0, 1), st.integers(1, 255), st.booleans(), st.integers(2, 3000))
def test_damaged_gzip_gives_what_byte_after_byte_gives(
    tmp_path_factory, where, flip, cut, size
) -> None:
    path = tmp_path_factory.mktemp("z") / "a.gz"
    data = bytearray(gzip.compress(lines_of(300) + b"z" * 5000, mtime=0))
    at = int(where * (len(data) - 3)) + 2
    data[at] ^= flip
    data = data[:at] if cut else data
    path.write_bytes(data)
    want, inflate = b"", zlib.decompressobj(31)
    try:
        for byte in data:
            want += inflate.decompress(bytes([byte]))
    except zlib.error:
        pass
    notes = Notes()
    assert b"".join(blocks(path, notes, size)) == want
    assert inflate.eof or f"offset {len(want):,} after" in notes.texts()[0]


@pytest.mark.parametrize("text", [b"", b"{},", b"x" * 500, random.Random(2).randbytes(300)])
def test_many_small_gzip_members_take_time_by_their_number(tmp_path, text) -> None:
    path, many = tmp_path / "a.gz", 50_000
    path.write_bytes(gzip.compress(text) * many)
    begun = time.process_time()
    got = [len(block) for block in blocks(path, Notes())]
    assert sum(got) == len(text) * many
    assert all(size == trace_file.BLOCK for size in got[:-1])
    assert time.process_time() - begun < 10  # 0.5 s; each member used to copy all that followed
