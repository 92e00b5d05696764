package lockstep;

import java.io.DataInputStream;
import java.io.IOException;
import java.time.Duration;
import java.util.HashSet;
import java.util.Properties;
import java.util.Set;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** wordcount: the number of tweets in a sliding window that contain each word. */
final class Wordcount implements Application {
    private final long advance;
    private final long size;
    private final boolean isSet;

    Wordcount(Properties params) {
        advance = Long.parseLong(params.getProperty("advance"));
        size = Long.parseLong(params.getProperty("size"));
        isSet = params.getProperty("multiplicity").equals("set");
    }

    /** How often a word occurs in the window that ends at {@code ts}. */
    public record Counted(long ts, String word, long n, long cause) implements Output {
        @Override
        public void writeTo(Rows rows) throws IOException {
            rows.word(ts);
            rows.text(word);
            rows.word(n);
        }
    }

    /** Emits the words of a tweet; ASCII whitespace separates them. */
    private static final class Split implements FlatMapFunction<Line, String> {
        private final boolean isSet;
        private final Set<String> words = new HashSet<>();

        Split(boolean isSet) {
            this.isSet = isSet;
        }

        @Override
        public void flatMap(Line tweet, Collector<String> out) {
            String text = tweet.text();
            words.clear();
            int at = 0;
            while (true) {
                while (at < text.length() && isBlank(text.charAt(at))) {
                    at++;
                }
                if (at == text.length()) {
                    return;
                }
                int start = at;
                while (at < text.length() && !isBlank(text.charAt(at))) {
                    at++;
                }
                String word = text.substring(start, at);
                if (!isSet || words.add(word)) {
                    out.collect(word);
                }
            }
        }

        private static boolean isBlank(char c) {
            return c == ' ' || c >= 9 && c < 14;
        }
    }

    private static final class Count implements AggregateFunction<String, Long, Long> {
        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(String word, Long count) {
            return count + 1;
        }

        @Override
        public Long getResult(Long count) {
            return count;
        }

        @Override
        public Long merge(Long one, Long other) {
            return one + other;
        }
    }

    private static final class Report extends ProcessWindowFunction<Long, Counted, String, TimeWindow> {
        private long end = Long.MIN_VALUE;
        private long cause;

        @Override
        public void process(String word, Context context, Iterable<Long> counts, Collector<Counted> out) {
            if (context.window().getEnd() != end) {
                end = context.window().getEnd();
                int first = Pass.current.workload.firstAt(end);
                cause = first < Pass.current.workload.events().length ? first : -1;
            }
            out.collect(new Counted(end, word, counts.iterator().next(), cause));
        }
    }

    @Override
    public Workload<Line> read(DataInputStream in, int events) throws IOException {
        long[] ts = Workload.longs(in, events);
        // Any event may be the one that ends a window.
        return new Workload<>(Line.of(Workload.texts(in, events)), ts, Workload.ALL);
    }

    @Override
    public int sources(int threads) {
        return threads;
    }

    @Override
    public void build(StreamExecutionEnvironment env) {
        // A window ends `size` after a multiple of `advance`.
        Application.events(env, Line.class, Steps.strategy(size, advance))
                .flatMap(new Split(isSet))
                .keyBy(word -> word)
                .window(SlidingEventTimeWindows.of(Duration.ofMillis(size), Duration.ofMillis(advance)))
                .aggregate(new Count(), new Report())
                .sinkTo(new DigestSink<>());
    }
}
