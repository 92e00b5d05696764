"""Word count as BriskStream publishes it: with a Parser in front of the Splitter.

    source -> parse (stateless) -> split (stateless) -> count (partitioned by word) -> sink

The application comes from BriskStream, section 2.2 and figure 2. Events, parameters and outputs are those of `wc`. That
one has no Parser: its Splitter drops invalid sentences. Here the Parser drops them, and hands all other sentences on as
they are.
"""

from streaming_core.api import App
from streaming_core.apps import wc
from streaming_core.apps.wc import Count, Counted, Sentence, Word, count, split

app = App(
    "brisk_wc",
    reads="BriskStream, section 2.2 and figure 2: with a Parser",
    params=wc.app.declared,
)


def parse(event, out):
    """Drop empty lines."""
    if len(event.line) == 0:
        out.drop()
    else:
        out.emit(ts=event.ts, line=event.line)


sentences = app.source(Sentence).flat_map(parse, Sentence)
words = sentences.flat_map(split, Word)
words.key_by("word").process(count, state=Count, output=Counted).sink()

app.agrees_unordered("word", "n", states=("count",))
app.generates(wc.sentences)
