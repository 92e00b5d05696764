"""Windowed operators, printed: the keys of a row, the windows that it updates, expiry (language/window.py)."""

from __future__ import annotations

from streaming_core.language.operator import Operator
from streaming_core.language.record import Resolved, Slot, Text
from streaming_core.language.window import MOST, Window
from streaming_core.oracle.loop import layout
from streaming_core.oracle.loop.functions import Functions


class Windowed(Functions):
    """Prints the windowed operators of an application."""

    def windowed(self, i: int, operator: Operator, window: Window) -> tuple[str, str]:
        """Print operator i; returns the functions that the driver calls with the rows of all inputs, and at the end."""
        program, work = self.work.program, self.work
        self.operator_name, self.emitter = operator.name, self.emitter_of(i)
        bounds = program.windows[operator]
        block = work.region.block(layout.WINDOWS_BYTES + 8 * len(window.states))
        work.windows.append((bounds, block))
        work.open_windows(bounds, block)
        self.windows = self.place(block)
        key = program.records[window.key]
        states, at = [], layout.E_KEY + layout.FIELD_BYTES * len(key.state[0])
        for state in window.states:
            states.append(at)
            at += (program.records[state].state[1] + 7) // 8 * 8
        names = {
            "w": self.windows,
            "states": "".join(f", _entry + {offset}" for offset in states),
            "i": str(i),
        }
        # A key of a row: its fields, then its hash.
        self.key_bytes = layout.FIELD_BYTES * len(key.state[0]) + 8
        self._key_functions(names["i"], key, window.every is not None)
        self._find(names, key, at)
        is_single = window.kind == "single"
        self._expiry(names, operator, window.kind, window.is_observed)
        for stream in range(len(window.states)):
            self._keys(names, operator, window, stream)
            self._take(names, operator, window, stream, is_single and not window.is_observed)
        self._inputs(names, operator, window)
        self.finished += [
            (0, "@_compiled", 0), (0, f"def _flush_{i}(_ctx, states, n):", 0),
            (1, f"_expire_{i}(_ctx, {layout.END_OF_TIME})", 0),
        ]  # fmt: skip
        return f"_operator_{i}", f"_flush_{i}"

    def _print(self, text: str, names: dict[str, str]) -> None:
        """Print functions from a template; `$name` stands for the value of that name."""
        for name, value in names.items():
            text = text.replace(f"${name}", value)
        for line in text.strip("\n").split("\n"):
            bare = line.lstrip(" ")
            self.finished.append(((len(line) - len(bare)) // 4, bare, 0))

    def _key_functions(self, i: str, key: Resolved, is_index: bool) -> None:
        """Print functions of keys: whether two are equal, the hash for tables, and the key group.

        The key group follows from the number of a key that every row has (`is_index`), and from a hash of others.
        """
        same, mixed, grouped = [], ["_h = _u64(0)"], ["_h = _group_start()"]
        for n, slot in enumerate(key.state[0].values()):
            at = layout.FIELD_BYTES * n
            if isinstance(slot.type, Text):
                field = f"(_get(key + {at}), _get(key + {at + 8}))"
                same.append(f"_text_equal((_get(a + {at}), _get(a + {at + 8})), (_get(b + {at}), _get(b + {at + 8})))")
                mixed.append(f"_h = _mix(_h ^ _u64(_text_hash(_get(key + {at}), _get(key + {at + 8}))))")
                grouped.append(f"_h = _group_step(_h, _group_text({field}))")
                alone = f"_group_text({field})"
            else:
                same.append(f"_get(a + {at}) == _get(b + {at})")
                mixed.append(f"_h = _mix(_h ^ _get_u64(key + {at}))")
                grouped.append(f"_h = _group_step(_h, _get_u64(key + {at}))")
                alone = ""
        if len(key.state[0]) == 1 and alone:
            grouped = [f"_h = {alone}"]
        else:
            grouped.append("_h = _group_finish(_h)")
        group = "_group_of_index(_get(key))" if is_index else "_group_of(_h)"
        grouped = ["pass"] if is_index else grouped
        self._print(
            f"""
@_compiled
def _same_{i}(a, b):
    return {" and ".join(same)}
@_compiled
def _hash_{i}(key):
    {"; ".join(mixed)}
    return _int(_h)
@_compiled
def _group_{i}(key):
    {"; ".join(grouped)}
    return {group}
""",
            {},
        )

    def _find(self, names: dict[str, str], key: Resolved, texts: int) -> None:
        """Print the functions that find a key's entry in a table, or make one."""
        sizes, copies = [str(texts)], []
        for n, slot in enumerate(key.state[0].values()):
            at = layout.FIELD_BYTES * n
            if isinstance(slot.type, Text):
                sizes.append(f"_get(key + {at + 8}) + 16")
                copies += [
                    f"_copy_bytes(_at, _get(key + {at}), _get(key + {at + 8}))",
                    f"_put(_entry + {layout.E_KEY + at}, _at)",
                    f"_at += _get(key + {at + 8}) + 16",
                ]
        copied = "\n    ".join(["pass", *copies])
        self._print(
            f"""
@_compiled
def _find_$i(table, key, h):
    slots, mask = _get(table + {layout.T_SLOTS}), _get(table + {layout.T_MASK})
    if slots == 0:
        return 0
    place = h & mask
    while True:
        _entry = _get(slots + 8 * place)
        if _entry == 0 or (_get(_entry + {layout.E_HASH}) == h and _same_$i(_entry + {layout.E_KEY}, key)):
            return _entry
        place = (place + 1) & mask
@_compiled
def _size_$i(key):
    return {" + ".join(sizes)}
@_compiled
def _make_$i(_entry, table, key, h, number):
    _put(_entry + {layout.E_HASH}, h)
    _put(_entry + {layout.E_GROUP}, _group_$i(key))
    _copy_bytes(_entry + {layout.E_KEY}, key, {layout.FIELD_BYTES * len(key.state[0])})
    _at = _entry + {texts}
    {copied}
    _stand_$i(_entry, number)
    _table_add(table, _entry)
""",
            names,
        )

    def _expiry(self, names: dict[str, str], operator: Operator, kind: str, is_observed: bool) -> None:
        """Print the functions that put an entry into a window, and that expire windows."""
        program, is_single = self.work.program, kind == "single"

        def call(role: str, last: str) -> str:
            if role not in operator.functions:
                return "pass"
            return f"{self.function_name(program.operator(operator, role))}(_ctx, _entry{names['states']}{last})"

        result, slide = call("result", ", 0"), call("slide", "")
        self._print(
            f"""
@_compiled
def _stand_$i(_entry, number):
    _w = $w
    _start = number * _get(_w + {layout.W_ADVANCE})
    _put(_entry + {layout.E_NUMBER}, number)
    _put(_entry + {layout.E_START}, _start)
    _put(_entry + {layout.E_END}, _start + _get(_w + {layout.W_SIZE}))
""",
            names,
        )
        if is_single and not is_observed:
            self._print(
                f"""
@_compiled
def _expire_$i(_ctx, before):
    _w = $w
    _forget(_w, before if before == {layout.END_OF_TIME} else before * _get(_w + {layout.W_ADVANCE}))
""",
                names,
            )
            return
        if kind == "session":
            self._print(
                f"""
@_compiled
def _expire_$i(_ctx, before):
    _w = $w
    _entry = _session_end(_w, before)
    while _entry != 0:
        {result}
        _table_remove(_w + {layout.W_TABLE}, _entry)
        _release(_entry)
        _entry = _session_end(_w, before)
""",
                names,
            )
            return
        then = f"""
        if _get(_entry + {layout.E_LAST}) < (_number + 1) * _get(_w + {layout.W_ADVANCE}):
            _table_remove(_w + {layout.W_TABLE}, _entry)
            _release(_entry)
        else:
            _stand_$i(_entry, _number + 1)
            {slide}
            _pane_append(_pane_open(_w, _number + 1), _entry)"""
        self._print(
            f"""
@_compiled
def _expired_$i(_ctx, _number):
    _w = $w
    _pane = _pane_take(_w)
    _n = _in_order(_w, _pane)
    for _j in range(_n):
        _entry = _get(_get(_w + {layout.W_SORTED}) + 8 * _j)
        {result}{then if is_single else ""}
    _pane_release(_pane)
@_compiled
def _expire_$i(_ctx, before):
    _w = $w
    while _get(_w + {layout.W_OPEN}) != 0 and _first_open(_w) < before:
        _expired_$i(_ctx, _first_open(_w))
""",
            names,
        )

    def _keys(self, names: dict[str, str], operator: Operator, window: Window, stream: int) -> None:
        """Print the function that puts the keys of a stream's row at W_KEYS, and returns their number."""
        name = f"_keys_$i_{stream}(_ctx, _row)"
        if window.every is not None:
            self._keys_of_every_row(names, name)
        elif window.field is not None:
            row = self.work.program.records[operator.streams[stream]]
            self._key_in_field(names, name, row.event[0][window.field])
        else:
            is_set = self.work.program.windows[operator].is_set
            function = self.function_name(self.work.program.operator(operator, f"keys_{stream}"))
            self._keys_from_function(names, name, function, is_set)

    def _store_hash(self) -> str:
        """Return the line that stores a key's hash behind its fields."""
        return f"_put(_key + {self.key_bytes - 8}, _hash_$i(_key))"

    def _keys_of_every_row(self, names: dict[str, str], name: str) -> None:
        """Print the keys that every row has: the numbers from 0 on, computed once."""
        size, hashed = self.key_bytes, self._store_hash()
        self._print(
            f"""
@_compiled
def {name}:
    _w = $w
    if _get(_w + {layout.W_KEYS_COUNT}) == 0:
        for _j in range(_get(_w + {layout.W_EVERY})):
            _key = _key_slot(_w, _j, {size})
            _put(_key, _j)
            {hashed}
        _put(_w + {layout.W_KEYS_COUNT}, _get(_w + {layout.W_EVERY}))
    return _get(_w + {layout.W_KEYS_COUNT})
""",
            names,
        )

    def _key_in_field(self, names: dict[str, str], name: str, slot: Slot) -> None:
        """Print the only key of a row: one of its fields."""
        size, hashed = self.key_bytes, self._store_hash()
        if isinstance(slot.type, Text):
            text = self.text_at("_row", slot.offset)
            stores = [f"_text = {text}", "_put(_key, _text[0])", "_put(_key + 8, _text[1])"]
        else:
            stores = [f"_put(_key, _int({self.load(slot.type, f'_row + {slot.offset}')}))"]  # type: ignore[arg-type]
        self._print(
            f"""
@_compiled
def {name}:
    _key = _key_slot($w, 0, {size})
    {"; ".join(stores)}
    {hashed}
    return 1
""",
            names,
        )

    def _keys_from_function(self, names: dict[str, str], name: str, function: str, is_set: bool) -> None:
        """Print the keys that an operator function adds; a set drops repeated ones, by stamps in a table."""
        size, hashed = self.key_bytes, self._store_hash()
        from_row = f"""
@_compiled
def {name}:
    _w = $w
    _put(_w + {layout.W_KEYS_COUNT}, 0)
    {function}(_ctx, _row, 0)
    _n = _get(_w + {layout.W_KEYS_COUNT})"""
        if not is_set:
            self._print(
                f"""{from_row}
    for _j in range(_n):
        _key = _get(_w + {layout.W_KEYS}) + _j * {size}
        {hashed}
    return _n
""",
                names,
            )
            return
        self._print(
            f"""{from_row}
    _m = 0
    _mask = _stamps(_w, _n)
    _stamp, _slots, _first = _get(_w + {layout.W_STAMP}), _get(_w + {layout.W_STAMPS}), _get(_w + {layout.W_KEYS})
    for _j in range(_n):
        _key = _first + _j * {size}
        _h = _hash_$i(_key)
        _put(_key + {size - 8}, _h)
        _place = _h & _mask
        _new = True
        while _new and _get(_slots + 16 * _place) == _stamp:
            _other = _first + _get(_slots + 16 * _place + 8) * {size}
            _new = not (_get(_other + {size - 8}) == _h and _same_$i(_other, _key))
            _place = (_place + 1) & _mask
        if _new:
            _put(_slots + 16 * _place, _stamp)
            _put(_slots + 16 * _place + 8, _m)
            if _m != _j:
                _copy_bytes(_first + _m * {size}, _key, {size})
            _m += 1
    return _m
""",
            names,
        )

    def _take(
        self, names: dict[str, str], operator: Operator, window: Window, stream: int, is_unobserved: bool
    ) -> None:
        """Print the function that takes one row of a stream."""
        program = self.work.program
        record = program.records[operator.streams[stream]]
        ts = self.load(record.event[0]["ts"].type, f"_row + {record.event[0]['ts'].offset}")  # type: ignore[arg-type]
        update = self.function_name(program.operator(operator, f"update_{stream}"))
        self.work.sites.append(f"operator {operator.name}, event {{seq}}: {{error}} (ts)")
        beyond = "({} - _size) // _advance + 1"
        settle = "\n    _text_settle(_ctx)" if any(program.records[s].keeps_texts for s in window.states) else ""
        low = "_ts" if len(window.states) == 1 else f"_low_mark(_w, {len(window.states)})"
        meets = f"{update}(_ctx, _row, _entry{names['states']}, 0)"
        if window.kind == "multi":
            body = self._update_multi(meets)
        elif window.kind == "session":
            body = self._update_session(meets, program.windows[operator].most)
        else:
            body = self._update_single(meets, is_unobserved)
        self._print(
            f"""
@_compiled
def _take_$i_{stream}(_ctx, _row):
    _w = $w{settle}
    _ts = _fit(_ctx, {ts}, {-MOST}, {MOST}, {len(self.work.sites) - 1})
    _advance, _size = _get(_w + {layout.W_ADVANCE}), _get(_w + {layout.W_SIZE})
    if _ts > _get(_w + {layout.WINDOWS_BYTES + 8 * stream}):
        _put(_w + {layout.WINDOWS_BYTES + 8 * stream}, _ts)
        _low = {low}
        if _low != {layout.NO_TIME}:
            _least = {beyond.format(f"_low - _get(_w + {layout.W_DELAY})")}
            if _least > _get(_w + {layout.W_LEAST}):
                _put(_w + {layout.W_LEAST}, _least)
                _expire_$i(_ctx, _least)
    _from = max({beyond.format("_ts")}, _get(_w + {layout.W_LEAST}))
    _last = _ts // _advance
    if _from > _last:
        _put(_w + {layout.W_LATE}, _get(_w + {layout.W_LATE}) + 1)
        return 0
    _n = _keys_$i_{stream}(_ctx, _row){body}
    return 0
""",
            names,
        )

    def _update_multi(self, meets: str) -> str:
        """Return the lines that update each key in each window of a row."""
        return f"""
    if _n != 0:
        for _number in range(_from, _last + 1):
            _pane = _pane_open(_w, _number)
            for _j in range(_n):
                _key = _get(_w + {layout.W_KEYS}) + _j * {self.key_bytes}
                _h = _get(_key + {self.key_bytes - 8})
                _entry = _find_$i(_pane, _key, _h)
                if _entry == 0:
                    _entry = _pane_memory(_pane, _size_$i(_key))
                    _make_$i(_entry, _pane, _key, _h, _number)
                    _pane_append(_pane, _entry)
                {meets}"""

    def _update_session(self, meets: str, most: int | None) -> str:
        """Return the lines that update, or begin, the session of each key of a row."""
        last, start = f"max(_get(_entry + {layout.E_LAST}), _ts)", f"_get(_entry + {layout.E_START})"
        if most is None:
            start = f"min({start}, _ts)"
        else:
            last = f"min({last}, {start} + {most} - _size)"
        return f"""
    for _j in range(_n):
        _key = _get(_w + {layout.W_KEYS}) + _j * {self.key_bytes}
        _h = _get(_key + {self.key_bytes - 8})
        _entry = _find_$i(_w + {layout.W_TABLE}, _key, _h)
        if _entry == 0:
            _entry = _allocate(_w, _size_$i(_key))
            _make_$i(_entry, _w + {layout.W_TABLE}, _key, _h, _ts)
            _put(_entry + {layout.E_LAST}, _ts)
            _session_begin(_w, _entry)
        _put(_entry + {layout.E_LAST}, {last})
        _put(_entry + {layout.E_START}, {start})
        _put(_entry + {layout.E_END}, _get(_entry + {layout.E_LAST}) + _size)
        {meets}"""

    def _update_single(self, meets: str, is_unobserved: bool) -> str:
        """Return the lines that update the one window of each key of a row.

        Without observers of expiries, they also move the entry to this window, and to the end of the list.
        """
        moved = (
            f"""
        if _entry != 0:
            _untouched(_w, _entry)
            if _get(_entry + {layout.E_LAST}) < _from * _advance:
                _table_remove(_w + {layout.W_TABLE}, _entry)
                _release(_entry)
                _entry = 0
            else:
                _touched(_w, _entry)
                _stand_$i(_entry, _from)"""
            if is_unobserved
            else ""
        )
        listed = "_touched(_w, _entry)" if is_unobserved else "_pane_append(_pane_open(_w, _from), _entry)"
        return f"""
    for _j in range(_n):
        _key = _get(_w + {layout.W_KEYS}) + _j * {self.key_bytes}
        _h = _get(_key + {self.key_bytes - 8})
        _entry = _find_$i(_w + {layout.W_TABLE}, _key, _h){moved}
        if _entry == 0:
            _entry = _allocate(_w, _size_$i(_key))
            _make_$i(_entry, _w + {layout.W_TABLE}, _key, _h, _from)
            {listed}
            _put(_entry + {layout.E_LAST}, _ts)
        _put(_entry + {layout.E_LAST}, max(_get(_entry + {layout.E_LAST}), _ts))
        {meets}"""

    def _inputs(self, names: dict[str, str], operator: Operator, window: Window) -> None:
        """Print the function that takes the rows of all inputs: by event, then in the order of inputs."""
        places = range(len(operator.inputs))
        records = self.work.program.records
        strides = [records[source.emitted].event[1] for source in operator.inputs]
        lines = [f"_end_{k} = _at_{k} + _n_{k} * {strides[k]}" for k in places]
        lines.append(f"while {' or '.join(f'_at_{k} < _end_{k}' for k in places)}:")
        lines.append(f"    _first = {layout.END_OF_TIME}")
        lines += [f"    _first = min(_first, _get(_at_{k}) if _at_{k} < _end_{k} else _first)" for k in places]
        lines.append(f"    _put(_ctx + {layout.SEQ}, _first)")
        lines += [f"    {line}" for line in self.new_event()]
        for k, stream in zip(places, window.streams, strict=True):
            lines += [
                f"    while _at_{k} < _end_{k} and _get(_at_{k}) == _first:",
                f"        _take_{names['i']}_{stream}(_ctx, _at_{k})",
                f"        _at_{k} += {strides[k]}",
            ]
        arguments = ", ".join(f"_at_{k}, _n_{k}" for k in places)
        text = "\n    ".join([f"def _operator_{names['i']}(_ctx, {arguments}):", *lines])
        self._print(f"@_compiled\n{text}", {})
