"""Traffic on an expressway by hand: every toll and warning of Linear Road occurs within four minutes."""

import pyarrow as pa

from streaming_core.data import workload

UNUSED = -1
FIELDS = ("vid", "speed", "lane", "seg", "pos", "qid", "day")


def events() -> pa.Table:
    """A crowd that stays in segment 1, cars that pass through from segment 0, and two vehicles that collide in 3.

    Cars enter segment 1 in the second minute, at a toll, and segment 2 in the fourth, with an accident ahead. Half of
    the vehicles leave with their last report. Everybody asks for a balance, and for an expenditure, once.
    """
    rows = []

    def add(ts, kind, vid, **fields):
        row = dict.fromkeys(FIELDS, UNUSED) | {"ts": ts, "type": kind, "vid": vid, "xway": UNUSED, "dir": UNUSED}
        row |= dict.fromkeys(("s_init", "s_end", "tod", "dow"), UNUSED)
        rows.append(row | ({"xway": 0} if kind != 2 else {}) | fields)

    crowd, cars = range(55), range(55, 60)
    for i in range(8):
        for vid in range(62):
            ts, lane = 30 * i + vid % 30, 0 if i == 0 else 4 if i == 7 and vid % 2 else 2
            if vid in crowd:
                seg, pos = 1, 5280 + 10 * vid + i
            elif vid in cars:
                seg = 0 if i < 2 else 1 if i < 6 else 2
                pos = seg * 5280 + 100 * i + vid
            else:  # in the same place from the third minute on
                seg, pos, lane = 3, 16_000 if i else 15_900 + vid, 1 if 0 < i < 7 else lane
            wrong = vid == 7 and i == 3
            add(ts, 0, vid, speed=25 + vid % 7, lane=lane, dir=2 if wrong else 0, seg=seg, pos=pos)
            if i == vid % 8 or (vid in cars and i == 7):
                add(ts, 2, vid, qid=vid * 8 + i)
            if i == (vid + 3) % 8:
                add(ts, 3, vid, qid=1000 + vid * 8 + i, day=vid + 1 if vid < 60 else 0)
            if i == 4 and vid % 10 == 0:
                add(ts, 4, vid, qid=2000 + vid)
    rows.sort(key=lambda row: (row["ts"], row["vid"], row["type"]))
    rows = [{**row, "seq": seq} for seq, row in enumerate(rows)]
    return pa.Table.from_pylist(rows, workload.schema("lr", {}))
