"""Workloads: any chunking gives the same events, files are read back whole, damage is refused."""

import json
import shutil
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_core import generator
from streaming_core.api import App, f64, i64, record
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.data.digest import digest_table, format_digest
from streaming_core.errors import BadInput
from streaming_core.storage import sealed

APPS = registry.names()
VARIANTS = [
    ("gs", {}),
    ("gs", {"partitioned": False, "theta": 0.9, "n_items": 12, "invalid_ratio": 0.1, "pattern": "independent"}),
    ("gs", {"n_items": 20, "mp_ratio": 0.5, "mp_len": 6, "read_ratio": 0.3}),
    ("sl", {}),
    ("sl", {"n_items": 3, "theta": 2.0, "invalid_ratio": 0.1, "pattern": "independent", "mp_ratio": 0.3}),
    ("wc", {}),
    ("wc", {"distinct": True, "words": 2, "invalid_ratio": 0.1}),
    ("fd", {"theta": 0.5, "fraud_ratio": 0.2, "invalid_ratio": 0.1}),
    ("fd", {"markov": True, "entities": 37}),
    ("sd", {"invalid_ratio": 0.1}),
    ("ob", {}),
    (
        "ob",
        {"len_mode": "code", "length": 24, "bid_length": 5, "n_items": 30, "unauth_ratio": 0.1, "invalid_ratio": 0.1},
    ),
    ("ob", {"n_items": 4, "duplicates": True, "bid_ratio": 0.3, "mp_ratio": 0.4, "partitioned": False, "theta": 1.2}),
    ("tp", {}),
    ("tp", {"segments": 256, "invalid_ratio": 0.1, "reports_per_s": 7}),
    ("tb", {"n_flights": 3, "invalid_ratio": 0.1}),
    ("gs", {"n_items": 400, "mp_ratio": 0.5, "mp_len": 6, "mp_partitions": "any"}),
    ("ob", {"n_items": 400, "mp_ratio": 0.5, "mp_partitions": "any"}),
    ("fx", {"n_accounts": 2, "n_currencies": 3, "invalid_ratio": 0.1}),
    ("tp", {"input": "linear_road", "seconds": 120, "veh_per_s": 1.5, "invalid_ratio": 0.1}),
    ("tp", {"separate": True, "invalid_ratio": 0.1}),
    ("tp", {"separate": True, "input": "linear_road", "seconds": 120, "veh_per_s": 1.5}),
    ("sl", {"n_items": 400, "mp_ratio": 0.5, "mp_len": 3, "mp_partitions": "any"}),
    ("tpk", {"input": "linear_road"}),
    ("pos_rep", {"seconds": 120, "veh_per_s": 1.5, "request_ratio": 0.1, "invalid_ratio": 0.1}),
    ("new_seg", {}),
    ("new_seg", {"xways": 3, "congestion": True, "accidents": False, "no_type4": True, "request_ratio": 1.0}),
    ("lr", {"seconds": 600, "request_ratio": 0.2}),
    ("wordcount", {}),
    ("paircount", {"rate": 0.05, "vocabulary": 300}),
    ("hashtag", {"rate": 20_000.0, "hashtag_ratio": 1.0, "hashtags": 7, "users": 3}),
    ("forward", {"skew": 0.0, "hashtag_skew": 2.0}),
    ("scalejoin", {}),
    ("scalejoin", {"phases": True, "domain": 20}),
    ("hedge", {"rate": 2.0, "invalid_ratio": 0.1}),
]


@record
class Event:
    ts: i64
    value: f64


def same(event, out):
    out.emit(ts=event.ts, value=event.value)


def source(generate):
    app = App("drawn")
    app.source(Event).flat_map(same, Event).sink()
    app.generates(generate)
    return app


def test_a_nondeterministic_generator_is_refused(tmp_path):
    dice = np.random.default_rng(1)

    def rolls(params, seed, start, stop):
        return {"ts": np.arange(start, stop), "value": dice.random(stop - start)}

    def of_the_slice(params, seed, start, stop):
        return {"ts": np.arange(start, stop), "value": np.random.default_rng(seed).random(stop - start)}

    def as_declared(params, seed, start, stop):
        return {"ts": np.arange(start, stop), "value": np.where(np.arange(start, stop) % 3, np.nan, 1.0)}

    for generate in (rolls, of_the_slice):
        for events in (1, 300):
            if (generate, events) == (of_the_slice, 1):  # the same slice
                continue
            message = rf"field value of event \d+ differs when the generator makes events {events // 2} to \d+ again"
            with pytest.raises(BadInput, match=message):
                workload.write(source(generate), {}, events, 7, tmp_path / "refused")
            assert not (tmp_path / "refused").exists()
    assert workload.write(source(as_declared), {}, 300, 7, tmp_path / "w")["events"] == 300


@pytest.mark.parametrize("at", [0, 7, 299])
def test_whole_slices_are_also_regenerated(tmp_path, at):
    """One event changes at every call. It lies outside the slice that the check regenerates alone."""
    dice = np.random.default_rng(1)

    def one_roll(params, seed, start, stop):
        ts = np.arange(start, stop)
        return {"ts": ts, "value": np.where(ts == at, dice.random(), 0.0)}

    with pytest.raises(BadInput, match=f"field value of event {at} differs when the generator makes events 0 to 299"):
        workload.write(source(one_roll), {}, 300, 7, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize(("app", "params"), VARIANTS)
def test_any_chunking_gives_the_same_events(app, params, monkeypatch):
    events = 300
    whole = workload.generate_chunk(app, params, events, 5, 0, events)
    assert whole.schema == workload.schema(app, params)
    assert whole.column("seq").to_pylist() == list(range(events))
    for cuts in ([0, 1, 2, 150, 300], [0, 100, 299, 300]):
        parts = [workload.generate_chunk(app, params, events, 5, a, b) for a, b in pairwise(cuts)]
        assert pa.concat_tables(parts).equals(whole)
    monkeypatch.setattr(workload, "_SLICE", 77)
    assert workload.generate_chunk(app, params, events, 5, 0, events).combine_chunks().equals(whole.combine_chunks())
    assert workload.generate_chunk(app, params, events, 5, 10, 10).num_rows == 0
    other = workload.generate_chunk(app, params, events, 6, 0, events)
    assert digest_table(other, ("seq",)) != digest_table(whole, ("seq",))


@pytest.mark.parametrize(("app", "params"), VARIANTS)
def test_events_match_their_recorded_digests(app, params):
    """Golden digests: any intended change of generated bytes changes this list."""
    digest = format_digest(*digest_table(workload.generate_chunk(app, params, 5000, 1, 0, 5000), ("seq",)))
    assert digest == GOLDEN[VARIANTS.index((app, params))]


GOLDEN = [
    "5000:35942b92f8ff23c9",
    "5000:8ec94c77bd5383eb",
    "5000:f01ae00e131d166f",
    "5000:6cc9e0e8f51d33c8",
    "5000:c1c6294df7c5a2ac",
    "5000:63c46eeeb6b16cd6",
    "5000:0e5c9508d1153334",
    "5000:e4d29f8b6f970150",
    "5000:79e800ef09a4d07b",
    "5000:96abd216c72d71fe",
    "5000:62642aa8839cfd53",
    "5000:05e698dc68149fe6",
    "5000:255c8e106905abbf",
    "5000:9cd68d87765d4eca",
    "5000:949709fdd9c15722",
    "5000:59f382e29191d86b",
    "5000:2788d24cb99b21b4",
    "5000:73308351df9b5fb5",
    "5000:7e462142ac9470cb",
    "5000:1eab1f57a131da1a",
    "5000:f5109e4c1b01b54d",
    "5000:ced612a717d5ff8c",
    "5000:cebb33c3324ec4f5",
    "5000:75e428f916a96fa6",
    "5000:d39b401839323879",
    "5000:a790c6902aef45cb",
    "5000:8665da182fc1c267",
    "5000:9c55b5042152d9eb",
    "5000:5ebc6835242f0570",
    "5000:5eb07d28979a62fe",
    "5000:4dbe9c9593432af6",
    "5000:047eaba6aa8a45be",
    "5000:993762e8a6ad6129",
    "5000:ee8b6ef369e09dab",
    "5000:d531db14a02fa6e7",
]


def test_gs_events_match_their_specification():
    table = workload.generate_chunk("gs", {}, 4000, 1, 0, 4000)
    keys, vals = (np.array(table.column(name).to_pylist()) for name in ("keys", "vals"))
    is_read, slot = table.column("is_read").to_numpy(), np.arange(4000) % 8
    assert (is_read == (slot >= 4)).all()
    parts = keys // 250
    multi = slot >= 6
    assert (parts[~multi] == parts[~multi][:, :1]).all()
    # 10 accesses over 4 partitions in a row: 3, 3, 3, 1
    steps = (parts[multi] - parts[multi][:, :1]) % 40
    assert (steps == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]).all()
    seq = np.arange(4000, dtype=np.uint64)[:, None] * 16 + np.arange(10, dtype=np.uint64)
    assert (vals == np.where(is_read[:, None], 0, generator.mix64(seq) % 10**6)).all()
    # Small ids are hot: the first partition, and the first key of each.
    assert np.bincount(parts[:, 0])[0] == np.bincount(parts[:, 0]).max()
    assert np.bincount(keys.reshape(-1) % 250).argmax() == 0


def test_sl_events_match_their_specification():
    table = workload.generate_chunk("sl", {"min_balance": 7, "min_balance_rise": 500}, 4000, 1, 0, 4000)
    column = {name: table.column(name).to_numpy().astype(np.int64) for name in table.column_names}
    slot, transfer = np.arange(4000) % 8, column["kind"] == 1
    assert (transfer == (slot >= 4)).all()
    assert (column["src_acct"] != column["dst_acct"])[transfer].all()
    assert (column["src_asset"] != column["dst_asset"])[transfer].all()
    part = {name: column[name] // 250 for name in ("src_acct", "dst_acct", "src_asset", "dst_asset")}
    single, multi = transfer & (slot < 6), transfer & (slot >= 6)
    for order, name in enumerate(("src_acct", "dst_acct", "src_asset", "dst_asset")):
        assert (part[name] == part["src_acct"])[single].all()
        assert ((part[name] - part["src_acct"]) % 40 == order)[multi].all()
    assert (part["dst_acct"] == part["dst_asset"])[~transfer].all()
    assert (column["src_acct"] + column["src_asset"] == 0)[~transfer].all()
    assert (column["min_bal"] == np.where(transfer, 7 + np.arange(4000) // 2, 0)).all()
    assert column["amt_acct"].min() >= 0
    assert 9_900 < column["amt_acct"].max() < 10_000
    assert 990 < column["amt_asset"].max() < 1_000
    multi_deposits = workload.generate_chunk("sl", {"mp_ratio": 1.0}, 800, 1, 0, 800).to_pandas().astype(int)
    multi_deposits = multi_deposits[multi_deposits.kind == 0]
    assert ((multi_deposits.dst_asset // 250 - multi_deposits.dst_acct // 250) % 40 == 1).all()


def test_ob_events_match_their_specification():
    table = workload.generate_chunk("ob", {"unauth_ratio": 0.25}, 4000, 1, 0, 4000)
    column = {name: np.array(table.column(name).to_pylist()) for name in table.column_names}
    slot = np.arange(4000) % 8
    assert (column["kind"] == np.array([0, 0, 0, 0, 0, 0, 1, 2])[slot]).all()
    assert (column["n"] == np.where(slot < 6, 1, 20)).all()
    used = np.arange(20) < column["n"][:, None]
    assert (column["items"] * ~used + column["prices"] * ~used + column["qtys"] * ~used == 0).all()
    # Orders are the multi-partition events: 20 items over 4 partitions in a row, all of them different.
    parts = column["items"][slot >= 6] // 250
    assert ((parts - parts[:, :1]) % 40 == np.repeat(np.arange(4), 5)).all()
    assert all(len(set(items)) == 20 for items in column["items"][slot >= 6].tolist())
    prices, qtys = column["prices"], column["qtys"]
    assert set(prices[slot == 6].ravel().tolist()) == set(range(100))
    assert set(qtys[slot == 7].ravel().tolist()) == set(range(20))
    assert (prices[slot == 7].max(), qtys[slot == 6].max()) == (0, 0)
    assert set(prices[slot < 6, 0].tolist()) == set(range(100))
    assert set(qtys[slot < 6, 0].tolist()) == set(range(20))
    assert 900 < (~column["auth"]).sum() < 1100


def test_ob_lengths_match_the_published_code():
    params = {"len_mode": "code", "length": 24}
    n = workload.generate_chunk("ob", params, 4000, 1, 0, 4000).column("n").to_numpy().reshape(-1, 8)
    assert set(n[:, 6:].ravel().tolist()) == set(range(5, 25))
    assert (n[:, :6] == 1).all()
    # Half of each eight events' orders are TOPs, drawn where eight events have an odd number of orders.
    for ratio in (0.5, 0.875, 0.4):
        kinds = workload.generate_chunk("ob", {"bid_ratio": ratio}, 8000, 1, 0, 8000).column("kind").to_numpy()
        assert abs((kinds == 0).mean() - ratio) < 0.02
        assert abs((kinds == 1).mean() - (1 - ratio) / 2) < 0.02


def test_tp_events_match_their_specification():
    table = workload.generate_chunk("tp", {"invalid_ratio": 0.1}, 100_000, 1, 0, 100_000)
    column = {name: table.column(name).to_numpy().astype(np.int64) for name in table.column_names}
    assert (column["ts"] == np.arange(100_000) // 1000).all()
    assert (column["pos"] // 5280 == column["seg"]).all()
    assert set(column["speed"].tolist()) == set(range(-1, 101))
    assert 0.095 < (column["speed"] == -1).mean() < 0.11
    counts = np.bincount(column["seg"], minlength=100)
    assert len(counts) == 100
    assert abs(counts[0] / counts[99] - 100**0.2) < 0.4
    assert 60_000 < len(set(column["vid"].tolist())) < 65_000  # 1 - 1/e of all keys
    assert {name: set(column[name].tolist()) for name in ("xway", "lane", "dir")} == {
        "xway": {0}, "lane": {1, 2, 3}, "dir": {0, 1},
    }  # fmt: skip


def test_markov_entities_take_turns():
    entities = [
        line.split(b",")[0] for line in
        workload.generate_chunk("fd", {"markov": True, "entities": 10}, 100, 1, 0, 100).column("line").to_pylist()
    ]  # fmt: skip
    rounds = [entities[at : at + 10] for at in range(0, 100, 10)]
    assert all(len(set(r)) == 10 for r in rounds)
    assert rounds[0] != rounds[1]


def test_address_covers_the_request_and_the_code(monkeypatch):
    base = workload.address("wc", {}, 100, 1)
    assert base == workload.address(registry.load("wc"), {"words": 10}, 100, 1)
    others = [workload.address(*a) for a in (("wc", {"words": 9}, 100, 1), ("wc", {}, 101, 1), ("wc", {}, 100, 2))]
    assert len({base, *others, workload.address("sd", {}, 100, 1)}) == 5
    monkeypatch.setattr(registry, "code_digest", lambda app: "edited")
    assert workload.address("wc", {}, 100, 1) != base
    monkeypatch.undo()
    monkeypatch.setattr(generator, "version", lambda: "edited")
    assert workload.address("wc", {}, 100, 1) != base


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nope", {}, 10, 1), "unknown application 'nope'; known: .*wc"),
        (("wc", {"nope": 1}, 10, 1), "app wc: unknown parameter 'nope'"),
        (("wc", {"words": 0}, 10, 1), "parameter words must be between 1 and 1000, got 0"),
        (("wc", {}, -1, 1), "events must be between"),
        (("wc", {}, 10, -1), "seed must be between"),
    ],
)
def test_bad_requests_are_refused_in_one_line(arguments, message):
    with pytest.raises(BadInput, match=message) as error:
        workload.address(*arguments)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("app", "params", "message"),
    [
        ("gs", {"n_items": 9}, "10 distinct keys need n_items of at least 10"),
        ("sl", {"n_items": 1}, "needs n_items of at least 2"),
        ("ob", {"n_items": 19}, "20 distinct items need n_items of at least 20"),
        ("ob", {"n_items": 2, "bid_length": 3}, "20 distinct items need n_items of at least 20"),
        ("ob", {"n_items": 2, "bid_length": 3, "duplicates": True}, "3 distinct items need n_items of at least 3"),
        ("ob", {"bid_length": 21}, "a bid for 21 items needs a length of at least 21"),
        ("ob", {"len_mode": "code"}, "needs a length of at least 24"),
        ("tb", {"n_flights": 1}, "n_flights must be at least 2"),
    ],
)
def test_impossible_draws_are_refused(app, params, message, tmp_path):
    with pytest.raises(BadInput, match=message):
        workload.write(app, params, 10, 1, tmp_path / "w")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("app", "params"), [("gs", {"n_items": 9}), ("sl", {"n_items": 1}), ("ob", {"n_items": 1})])
def test_few_keys_suffice_when_events_may_repeat_them(app, params):
    assert workload.generate_chunk(app, {**params, "duplicates": True}, 10, 1, 0, 10).num_rows == 10


def test_chunks_cover_all_events():
    assert workload.chunks(1) == [(0, 1)]
    cuts = workload.chunks(2 * workload.CHUNK + 1)
    assert cuts == [(0, 250_000), (250_000, 500_000), (500_000, 500_001)]


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    """Workloads in parts of 100 events."""
    monkeypatch.setattr(workload, "CHUNK", 100)


@pytest.mark.parametrize("app", APPS)
def test_a_written_workload_is_read_back(app, small, tmp_path):
    manifest = workload.write(app, {}, 250, 1, tmp_path / "w")
    assert manifest == workload.read_manifest(tmp_path / "w")
    assert manifest["address"] == workload.address(app, {}, 250, 1)
    assert (manifest["app"], manifest["events"], manifest["seed"]) == (app, 250, 1)
    assert manifest["params"] == registry.load(app).bind({})
    expected = workload.generate_chunk(app, {}, 250, 1, 0, 250)
    assert manifest["content_digest"] == format_digest(*digest_table(expected, ("seq",)))
    source = workload.read(tmp_path / "w", app, {})
    assert source.rows == 250
    for size in (7, 100, 1000):
        blocks = list(source.blocks(size))
        assert all(0 < block.num_rows <= size for block in blocks)
        assert pa.concat_tables(blocks).equals(expected)


def tampered(value):
    """Another value of the same kind."""
    match value:
        case str():
            return f"{value[:-1]}{'1' if value[-1] == '0' else '0'}"
        case int():
            return value + 1
        case list():
            return value[:-1]
    return {name: tampered(values) if i == 0 else values for i, (name, values) in enumerate(value.items())}


def test_any_change_to_a_manifest_is_detected(tmp_path):
    manifest = workload.write("gs", {}, 10, 1, tmp_path / "w")
    for key in [*manifest, "more"]:
        changed = tampered(manifest[key]) if key in manifest else "new"
        assert changed != manifest.get(key)
        (tmp_path / "w" / "manifest.json").write_text(json.dumps(manifest | {key: changed}))
        with pytest.raises(BadInput, match=r"manifest.json was changed \(digest \w{16}, expected \w{16}\); "):
            workload.read(tmp_path / "w")
    (tmp_path / "w" / "manifest.json").write_text(json.dumps(manifest))
    assert workload.read(tmp_path / "w").manifest == manifest


@pytest.mark.parametrize("file", ["../other/events/part-00000.parquet", "/etc/passwd", "events/../../x", "events//x"])
def test_parts_of_a_workload_always_lie_in_its_folder(tmp_path, file):
    workload.write("gs", {}, 10, 1, tmp_path / "other")
    manifest = workload.write("gs", {}, 10, 1, tmp_path / "w")
    manifest["parts"][0]["file"] = file
    (tmp_path / "w" / "manifest.json").write_text(json.dumps(sealed(manifest)))
    with pytest.raises(BadInput, match="invalid name"):
        workload.read(tmp_path / "w")


def test_parts_generated_elsewhere_can_be_sealed(small, tmp_path):
    whole = workload.write("sd", {}, 250, 1, tmp_path / "whole")
    cuts = workload.chunks(250)
    parts = [
        workload.write_part(tmp_path / "parts", i, workload.generate_chunk("sd", {}, 250, 1, *cuts[i]))
        for i in (2, 0, 1)
    ]
    with pytest.raises(BadInput, match="needs 250 events, but its parts hold 150"):
        workload.seal(
            tmp_path / "parts", "sd", {}, 250, 1, [p for p in parts if p["index"] < 1] + [parts[0] | {"index": 1}]
        )
    with pytest.raises(BadInput, match="must have the numbers 0, 1, 2"):
        workload.seal(tmp_path / "parts", "sd", {}, 250, 1, parts[:1])
    assert workload.seal(tmp_path / "parts", "sd", {}, 250, 1, parts, repeatable=True) == whole
    list(workload.read(tmp_path / "parts").blocks(1000))


def test_writing_again_never_overwrites_a_workload(tmp_path):
    out = tmp_path / "w"
    out.mkdir()
    workload.write("wc", {}, 20, 1, out)
    before = (out / "manifest.json").stat().st_mtime_ns
    workload.write("wc", {"words": 10}, 20, 1, out)
    assert (out / "manifest.json").stat().st_mtime_ns == before
    with pytest.raises(BadInput, match="holds another workload"):
        workload.write("wc", {}, 21, 1, out)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(BadInput, match="exists and is not a workload"):
        workload.write("wc", {}, 20, 1, tmp_path / "mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_generator_that_fails_leaves_nothing(small, tmp_path):
    def tables():
        yield workload.generate_chunk("wc", {}, 250, 1, 0, 100)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        workload.write("wc", {}, 250, 1, tmp_path / "w", tables())
    with pytest.raises(BadInput, match="its parts hold 100"):
        workload.write("wc", {}, 250, 1, tmp_path / "w", [workload.generate_chunk("wc", {}, 250, 1, 0, 100)])
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def folder(small, tmp_path):
    workload.write("sl", {}, 250, 1, tmp_path / "w")
    return tmp_path / "w"


def part(directory, index):
    return directory / "events" / f"part-{index:05d}.parquet"


def rewrite(directory, index, change):
    path = part(directory, index)
    table = change(pq.read_table(path))
    pq.write_table(table, path)


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-100])


def drop_manifest_key(directory):
    manifest = json.loads((directory / "manifest.json").read_text())
    del manifest["content_digest"]
    (directory / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda w: shutil.rmtree(w), "no workload at .*manifest.json is missing"),
        (lambda w: (w / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda w: (w / "manifest.json").write_text("{"), "cannot read manifest.json"),
        (drop_manifest_key, "content_digest is missing in manifest.json"),
        (lambda w: part(w, 1).unlink(), "part-00001.parquet is missing"),
        (lambda w: cut_short(part(w, 2)), "cannot read .*part-00002.parquet"),
        (lambda w: rewrite(w, 2, lambda t: t.slice(1)), "part-00002.parquet must have 50 rows, got 49"),
        (lambda w: rewrite(w, 0, lambda t: t.drop_columns(["min_bal"])), "column min_bal is missing"),
        (
            lambda w: rewrite(w, 0, lambda t: t.set_column(2, "kind", t.column("kind").cast("int64"))),
            "part-00000.parquet: column kind is int64, expected uint8",
        ),
        (lambda w: rewrite(w, 0, lambda t: t.append_column("more", t.column("ts"))), "column more is unexpected"),
    ],
)
def test_opening_a_damaged_workload_is_refused(damage, message, folder):
    damage(folder)
    with pytest.raises(BadInput, match=message) as error:
        workload.read(folder, "sl", {})
    assert "\n" not in str(error.value)


def change_one_value(table):
    values = table.column("amt_acct").to_pylist()
    values[17] += 1
    index = table.column_names.index("amt_acct")
    return table.set_column(index, table.schema.field(index), pa.array(values))


def swap_two_rows(table):
    order = list(range(table.num_rows))
    order[3], order[4] = order[4], order[3]
    return table.take(order)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_one_value, "the rows were changed after they were written"),
        (swap_two_rows, "rows are out of order: seq 104 comes after 102"),
    ],
)
def test_reading_all_events_detects_a_changed_one(change, message, folder):
    rewrite(folder, 1, change)
    opened = workload.read(folder, "sl", {})
    with pytest.raises(BadInput, match=message):
        list(opened.blocks(64))


def test_another_application_or_parameters_are_refused(folder):
    with pytest.raises(BadInput, match="belongs to application sl, not to gs"):
        workload.read(folder, "gs")
    with pytest.raises(BadInput, match=r"has theta=0\.6, but the request has theta=0\.5"):
        workload.read(folder, "sl", {"theta": 0.5})


# --- a user's generator -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (lambda n: {"ts": np.arange(n)}, r"must return columns ts, .*, got ts"),
        (lambda n: None, "must return a dict of columns by name, got a NoneType"),
        (lambda n: 1 // 0, r"generator of \w+ \(test_workload.py:\d+\): ZeroDivisionError: "),
        (
            lambda n: {"ts": np.arange(n), "line": [b"x"] * (n - 1)},
            "column line: needs 10 values without nulls, got 9 values",
        ),
        (
            lambda n: {"ts": np.arange(n), "line": [None] * n},
            "column line: needs 10 values without nulls, got 10 values with 10 nulls",
        ),
        (lambda n: {"ts": np.arange(n) + 0.5, "line": [b"x"] * n}, "column ts: .*truncated"),
        (lambda n: {"ts": -np.arange(n), "line": [b"x"] * n}, "ts must not decrease"),
    ],
)
def test_a_generator_that_breaks_its_contract_is_named(columns, message, monkeypatch):
    app = registry.load("wc")
    monkeypatch.setattr(app, "generator", lambda params, seed, start, stop: columns(stop - start))
    with pytest.raises(BadInput, match=message):
        workload.generate_chunk(app, {}, 10, 1, 0, 10)


def test_values_outside_a_columns_range_are_refused(monkeypatch):
    app = registry.load("sl")
    good = app.generator
    monkeypatch.setattr(app, "generator", lambda *a: good(*a) | {"kind": np.full(a[3] - a[2], 256)})
    with pytest.raises(BadInput, match=r"column kind: .*256"):
        workload.generate_chunk(app, {}, 10, 1, 0, 10)


def test_text_can_be_a_list_of_bytes(monkeypatch):
    app = registry.load("wc")
    monkeypatch.setattr(app, "generator", lambda p, s, a, b: {"ts": np.arange(a, b), "line": [b"x y"] * (b - a)})
    assert workload.generate_chunk(app, {}, 3, 1, 0, 3).column("line").to_pylist() == [b"x y"] * 3
