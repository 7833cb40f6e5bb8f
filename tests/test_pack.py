"""Records and their packed form: there and back, and by the page of Python in the docs."""

import copy
import json
import pickle
import re
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollfold import _core
from rollfold.errors import RecordFormatError, RollfoldError
from rollfold.packed import is_packed, pack, pack_json, unpack, unpack_json

DOCS = Path(__file__).parents[1] / "docs" / "packed.md"
LONG = "a text of more than thirty-two bytes, so that it pays to share it"


def documented_reader():
    """Give the reader that the docs promise is enough."""
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    namespace = {}
    exec(next(block for block in blocks if "def unpack" in block), namespace)  # noqa: S102
    return namespace["unpack"]


READERS = [pytest.param(unpack, id="ours"), pytest.param(documented_reader(), id="the docs'")]

KEYS = st.sampled_from(["$p", "$$p", "$$$p", "$", "p", "$q", "a", "messages", LONG]) | st.text(
    max_size=4
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**400), max_value=10**400)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.just(LONG)
    | st.integers(0, 3).map(lambda n: f"{n} {LONG}")
)


def containers(inner):
    return (
        st.lists(inner, max_size=6)
        | st.dictionaries(KEYS, inner, max_size=3)
        | inner.map(lambda value: [value, value])
        | st.tuples(inner, inner).map(lambda two: [[two[0]], list(two), {"$p": two[1]}])
    )


RECORDS = st.dictionaries(KEYS, st.recursive(LEAVES, containers, max_leaves=40), max_size=4)


def same(left, right):
    """Equality that tells 1 from 1.0 and from True, and 0.0 from -0.0."""
    return json.dumps(left) == json.dumps(right) and left == right


@settings(max_examples=100, deadline=None)
@given(RECORDS)
def test_any_record_comes_back(record):
    packed = pack(record)
    assert b"\n" not in packed
    assert is_packed(packed)
    assert same(unpack(packed), record)
    assert same(documented_reader()(packed), record)
    full = unpack_json(packed)
    assert full == _core.dumps(record)
    assert pack(full) == packed


@settings(max_examples=50, deadline=None)
@given(RECORDS)
def test_a_packed_record_is_a_record_too(record):
    once = json.loads(pack(record))
    twice = pack(once)
    assert same(unpack(twice), once)
    assert same(documented_reader()(twice), once)


@settings(max_examples=100, deadline=None)
@given(RECORDS, st.data())
def test_damage_is_an_error_of_one_line_or_another_record(record, data):
    packed = bytearray(pack({"a": record, "b": record}))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    told = []
    for read in (unpack, unpack_json):
        try:
            read(bytes(packed), max_bytes=1 << 20)
        except RecordFormatError as error:
            told.append(str(error))
    assert not any("\n" in line for line in told)


@pytest.mark.parametrize("read", READERS)
def test_histories_are_runs(read):
    messages = [{"role": "user", "content": f"{n} {LONG}"} for n in range(50)]
    record = {"calls": [{"messages": messages[:n]} for n in range(1, 51)]}
    packed = pack(record)
    assert b'{"messages":[{"$p":[0,40]}]}' in packed
    assert len(packed) < len(json.dumps(record)) / 10
    assert read(packed) == record


def test_blanks_of_other_writers_break_no_run():
    messages = [{"role": "user", "content": f"{n} {LONG}"} for n in range(50)]
    record = {"calls": [{"messages": messages[:n]} for n in range(1, 51)]}
    packed = pack(json.dumps(record, indent=2).encode())
    assert b'{"$p":[0,40]}' in packed
    assert b"\n" not in packed
    assert unpack(packed) == record


def test_equal_parts_are_one_object():
    message = {"role": "user", "content": [{"type": "text", "text": LONG}]}
    record = {"a": [message], "b": [copy.deepcopy(message), 1], "c": {"$p": copy.deepcopy(message)}}
    back = unpack(pack(record))
    assert back == record
    assert back["a"][0] is back["b"][0] is back["c"]["$p"]
    again = pickle.loads(pickle.dumps(back))
    assert again == record
    assert again["a"][0] is again["b"][0]


def test_numbers_keep_their_digits():
    text = b'{"a":[1.0,1e0,-0,-0.0,1E+2,123456789012345678901234567890],"b":[1.0,1e0,-0,-0.0,1E+2,123456789012345678901234567890]}'
    assert unpack_json(pack(text)) == text
    assert unpack(pack(text))["a"][5] == 123456789012345678901234567890


def test_depth():
    deep = json.loads("[" * 900 + "]" * 900)
    record = {"a": [deep, LONG], "b": [deep, LONG]}
    assert unpack(pack(record)) == record
    assert json.loads(unpack_json(pack(record))) == record
    for _ in range(200):
        deep = [deep]
    with pytest.raises(ValueError, match="deeper"):
        pack({"a": deep})
    with pytest.raises(RecordFormatError, match="deep"):
        pack(b"[" * 100_000)


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b'{"rollfold_packed":1,"parts":[],"record":{"$p":0}}',
        b'{"rollfold_packed":1,"parts":[{"$p":0}],"record":1}',
        b'{"rollfold_packed":1,"parts":[1,2],"record":{"$p":[0,2]}}',
        b'{"rollfold_packed":1,"parts":[1],"record":[{"$p":[0,2]}]}',
        b'{"rollfold_packed":1,"parts":[1],"record":[{"$p":null}]}',
        b'{"rollfold_packed":2,"parts":[1],"record":1}',
        b'{"rollfold_packed":1,"parts":[1],"record":NaN}',
        b'{"rollfold_packed":1,"parts":[1],"record":1} 2',
    ],
)
@pytest.mark.parametrize("read", [unpack, unpack_json])
def test_malformed(packed, read):
    with pytest.raises(RecordFormatError) as caught:
        read(packed)
    assert isinstance(caught.value, RollfoldError | ValueError)
    assert "\n" not in str(caught.value)


def test_a_bomb_is_refused_and_the_limit_can_be_raised():
    parts = ['"0123456789"'] + [f'[{{"$p":{n}}},{{"$p":{n}}}]' for n in range(40)]
    packed = f'{{"rollfold_packed":1,"parts":[{",".join(parts)}],"record":{{"$p":%d}}}}'
    with pytest.raises(RecordFormatError, match="limit"):
        unpack_json((packed % 40).encode())
    text = (packed % 12).encode()
    with pytest.raises(RecordFormatError, match="limit is 1000"):
        unpack_json(text, max_bytes=1000)
    assert len(json.loads(unpack_json(text, max_bytes=10**6))) == 2
    # As objects that share, it is small, however much text it stands for.
    shared = unpack((packed % 40).encode(), max_bytes=10_000)
    assert shared[0] is shared[1]
    runs = f'{{"rollfold_packed":1,"parts":[{",".join(["1"] * 1000)}],"record":[%s]}}'
    with pytest.raises(RecordFormatError, match="limit"):
        unpack((runs % ",".join(['{"$p":[0,1000]}'] * 1000)).encode(), max_bytes=10**6)


def test_what_json_has_no_word_for():
    with pytest.raises(TypeError):
        pack({"a": object()})
    with pytest.raises(RecordFormatError):
        pack(b"{'a': 1}")


def test_threads_pack_the_same_text():
    text = json.dumps({"a": [{"content": LONG * 10}] * 500}).encode()
    expected = pack(text)
    results = []
    threads = [threading.Thread(target=lambda: results.append(pack(text))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 8
    assert json.loads(unpack_json(expected)) == json.loads(text)


def test_pack_json_and_pack_agree():
    record = {"a": [1, 2.5, "é", None], "b": {"$p": LONG, "c": LONG}}
    assert pack(record) == pack_json(_core.dumps(record))
