"""The faults of the runtime, and for each the application that a search has to look at."""

import re

from tests.planted.overlay import ROOT

SOURCE = ROOT / "streaming_core/runtime/src/planted.rs"

APPLICATIONS = {
    "lost_abort": "sl",
    "overtaken_write": "tb",
    "stale_version": "gs",
    "lost_dependency": "tb",
    "lost_reader": "gs",
    "lost_rejections": "sl",
    "unordered_release": "pos_rep",
    "uneven_merge": "q2",
    "lost_turn": "wc",
    "stream_tie": "lr",
    "numbered_tie": "wc",
    "lost_bell": "wc",
    "lost_row": "new_seg",
    "stale_hashes": "wc",
    "early_expiry": "wordcount",
    "stale_session": "nexmark_q11",
    "lost_handover": "wordcount",
    "late_twice": "hashtag",
    "lost_key": "new_seg",
    "unlowered_tail": "nexmark_q21",
}


def sentences() -> dict[str, str]:
    """What each fault of the runtime does, as its variant says, by the name of the fault."""
    source = SOURCE.read_text().partition("enum Fault {")[2].partition("\n}")[0]
    variants = re.findall(r"/// (.*)\n +(\w+),", source)
    return {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower(): sentence for sentence, name in variants}
