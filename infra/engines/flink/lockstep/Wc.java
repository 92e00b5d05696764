package lockstep;

import java.io.DataInputStream;
import java.io.IOException;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.types.StringValue;
import org.apache.flink.types.Value;
import org.apache.flink.util.Collector;

/** wc: running counts of the words in a stream of sentences. */
final class Wc implements Application {

    /** A word with its count so far. {@code sub} is its place among the words of its sentence. */
    public static final class Word implements Value, Output {
        public long seq;
        public int sub;
        public String word;
        public long n; // not known before the keyed operator, which the sink is chained to

        @Override
        public void write(DataOutputView out) throws IOException {
            out.writeLong(seq);
            out.writeInt(sub);
            StringValue.writeString(word, out);
        }

        @Override
        public void read(DataInputView in) throws IOException {
            seq = in.readLong();
            sub = in.readInt();
            word = StringValue.readString(in);
        }

        @Override
        public void writeTo(Rows rows) throws IOException {
            rows.word(seq);
            rows.word(sub);
            rows.text(word);
            rows.word(n);
        }

        @Override
        public long cause() {
            return seq;
        }
    }

    private static final class Split implements FlatMapFunction<Line, Word> {
        private final Word word = new Word();

        @Override
        public void flatMap(Line line, Collector<Word> out) {
            String text = line.text();
            word.seq = line.seq();
            word.sub = 0;
            for (int start = 0; start < text.length(); ) {
                int stop = text.indexOf(' ', start);
                stop = stop < 0 ? text.length() : stop;
                if (stop > start) {
                    word.word = text.substring(start, stop);
                    out.collect(word);
                    word.sub++;
                }
                start = stop + 1;
            }
        }
    }

    private static final class Count extends KeyedProcessFunction<String, Word, Word> {
        private transient ValueState<Long> count;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Long.class));
        }

        @Override
        public void processElement(Word word, Context context, Collector<Word> out) throws IOException {
            Long before = count.value();
            word.n = before == null ? 1 : before + 1;
            count.update(word.n);
            out.collect(word);
        }
    }

    @Override
    public Workload<Line> read(DataInputStream in, int events) throws IOException {
        return Workload.ofLines(in, events);
    }

    @Override
    public void build(StreamExecutionEnvironment env) {
        // Each key must see its events in order. So one subtask emits and splits them: several would overtake each other.
        Application.events(env, Line.class, WatermarkStrategy.noWatermarks())
                .setParallelism(1)
                .flatMap(new Split())
                .setParallelism(1)
                .keyBy(word -> word.word)
                .process(new Count())
                .sinkTo(new DigestSink<>());
    }
}
