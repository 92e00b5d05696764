"""Texts that engines get wrong. An application's texts are bytes, in any encoding or none."""

from __future__ import annotations

LONG = 70_000  # bytes of the longest word: more than 16 bits count
MANY = 33_000  # times that a text repeats a word: more than a signed number of 16 bits counts

# Whitespace at unusual places, and bytes that only some libraries take for whitespace.
BLANKS = [
    b"",
    b" ",
    b"   ",
    b" a",
    b"a ",
    b"  a  b  ",
    b"a\tb",
    b"\ta\t",
    b"a\nb",
    b"a\r\nb",
    b"\n",
    b"a\x0bb",
    b"a\x0cb",
    b"a\x1cb\x1db\x1eb\x1fb",
    b"a\xc2\x85b",
    b"a\xc2\xa0b",
    b"a\xe2\x80\x83b",
    b"a\xe3\x80\x80b",
    b" a" * 200,
    b" b" * MANY,
    b" ".join(b"w%d" % number for number in range(300)),
]

# Bytes that are no text, texts that look equal, and numbers that do not parse.
BYTES = [
    b"a",
    b"A",
    b"a A a",
    b"\x00",
    b"a\x00",
    b"\x00a",
    b"a\x00b a\x00c",
    b"\xff",
    b"\xff\xfe a",
    b"\xc3",
    b"a\xc3 a\xc3\xa4",
    b"\x80 \x81 \x80",
    b"\xed\xa0\x80",
    "ä".encode(),
    b"a\xcc\x88",
    "ß SS ss ẞ".encode(),
    "\u0130 i \u0131 I".encode(),
    "日本 日本 日木".encode(),
    "\U0001f600 \U0001f601".encode(),
    b"\xef\xbb\xbfa",
    b"abcdefg abcdefgh abcdefghi abcdefgz",
    b"x" * LONG,
    b"x" * (LONG - 1) + b"y",
    b"\"a\" 'b' a,b a;b a|b \\n",
    b"NULL null None nan NaN",
    b"0",
    b"00",
    b"-0",
    b"+1",
    b"1.",
    b".5",
    b"1e3",
    b"0x10",
    b"1_000",
    b"1,5",
    b"--1",
    b"-",
    b"9223372036854775807",
    b"9223372036854775808",
    b"99999999999999999999999",
]


def variants(text: bytes) -> tuple[list[bytes], list[bytes]]:
    """A text of the application with other whitespace, and with other bytes."""
    half = len(text) // 2
    blanks = [
        b" " + text,
        text + b" ",
        text.replace(b" ", b"  "),
        text.replace(b" ", b"\t"),
        text.replace(b" ", b""),
        b" ".join([text, text]),
        text + b"\n",
        text + b"\r\n",
    ]
    others = [
        text,
        text.upper(),
        text[:half],
        text[half:],
        text[:-1],
        text[:-1] + b"\xff",
        text[1:],
        text + b"\x00",
        text + b"0",
        text[:half] + b"\x00" + text[half:],
        text[:half] + b"-" + text[half:],
        text[:half] + b"." + text[half:],
        text.translate(bytes.maketrans(b"0123456789", b"9876543210")),
        text.translate(bytes.maketrans(b"0123456789", b"xxxxxxxxxx")),
    ]
    return blanks, others
