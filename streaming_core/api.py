"""The names that an application imports. None of them knows about threads.

from streaming_core.api import App, Param, Ring, record, text, u32, i64
"""

from streaming_core.language import agg
from streaming_core.language.application import App
from streaming_core.language.dates import date_text, day, hour, minute, month, second, time_text, weekday, year
from streaming_core.language.decimals import decimal, decimal_text
from streaming_core.language.extent import count_window, duration, global_window, rolling, session, sliding, tumbling
from streaming_core.language.hints import Keys, Out, Txn, Window
from streaming_core.language.lookup import Constant, LookupTable
from streaming_core.language.parameters import Param, ParamRef, Params, Profile
from streaming_core.language.record import (
    Array,
    Counter,
    Decimal,
    Map,
    Queue,
    Record,
    Ring,
    Set,
    TopK,
    boolean,
    f64,
    i8,
    i16,
    i32,
    i64,
    record,
    text,
    u8,
    u16,
    u32,
)
from streaming_core.language.work import burn

__all__ = [
    "App",
    "Array",
    "Constant",
    "Counter",
    "Decimal",
    "Keys",
    "LookupTable",
    "Map",
    "Out",
    "Param",
    "ParamRef",
    "Params",
    "Profile",
    "Queue",
    "Record",
    "Ring",
    "Set",
    "TopK",
    "Txn",
    "Window",
    "agg",
    "boolean",
    "burn",
    "count_window",
    "date_text",
    "day",
    "decimal",
    "decimal_text",
    "duration",
    "f64",
    "global_window",
    "hour",
    "i8",
    "i16",
    "i32",
    "i64",
    "minute",
    "month",
    "record",
    "rolling",
    "second",
    "session",
    "sliding",
    "text",
    "time_text",
    "tumbling",
    "u8",
    "u16",
    "u32",
    "weekday",
    "year",
]
