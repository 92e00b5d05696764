package lockstep;

import java.io.DataInputStream;
import java.io.IOException;
import java.time.Duration;
import java.util.Properties;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.types.Value;
import org.apache.flink.util.Collector;

/**
 * scalejoin: pairs of rows of two streams whose times and whose two columns are close to each other.
 *
 * <p>The condition compares no column for equality, so there is no natural key. The program deals the right rows to
 * artificial keys in turn, and copies each left row to all of them. So each pair meets once. There is a key for each
 * subtask; the parameter {@code keys} changes no pair.
 */
final class Scalejoin implements Application {
    private final long size;
    private final long band;

    Scalejoin(Properties params) {
        size = Long.parseLong(params.getProperty("size"));
        band = Long.parseLong(params.getProperty("band"));
    }

    interface Row {}

    /** A row of the left stream. */
    public static final class Left implements Row, Value {
        public long seq;
        public long x;
        public double y;

        @Override
        public void write(DataOutputView out) throws IOException {
            out.writeLong(seq);
            out.writeLong(x);
            out.writeDouble(y);
        }

        @Override
        public void read(DataInputView in) throws IOException {
            seq = in.readLong();
            x = in.readLong();
            y = in.readDouble();
        }
    }

    /** A row of the right stream. */
    public static final class Right implements Row, Value {
        public long seq;
        public long a;
        public double b;
        public double c;
        public boolean d;

        @Override
        public void write(DataOutputView out) throws IOException {
            out.writeLong(seq);
            out.writeLong(a);
            out.writeDouble(b);
            out.writeDouble(c);
            out.writeBoolean(d);
        }

        @Override
        public void read(DataInputView in) throws IOException {
            seq = in.readLong();
            a = in.readLong();
            b = in.readDouble();
            c = in.readDouble();
            d = in.readBoolean();
        }
    }

    /** A pair of rows; {@code ts} is one millisecond after the later one. */
    public record Match(long ts, Left left, Right right) implements Output {
        @Override
        public void writeTo(Rows rows) throws IOException {
            rows.word(ts);
            rows.word(Math.min(left.seq, right.seq));
            rows.word(left.x);
            rows.real(left.y);
            rows.word(right.a);
            rows.real(right.b);
            rows.real(right.c);
            rows.flag(right.d);
        }

        @Override
        public long cause() {
            return Math.max(left.seq, right.seq);
        }
    }

    private static final class CopyLeft implements FlatMapFunction<Row, Tuple2<Integer, Left>> {
        private final int[] keys;

        CopyLeft(int[] keys) {
            this.keys = keys;
        }

        @Override
        public void flatMap(Row row, Collector<Tuple2<Integer, Left>> out) {
            if (row instanceof Left left) {
                for (int key : keys) {
                    out.collect(Tuple2.of(key, left));
                }
            }
        }
    }

    private static final class DealRight implements FlatMapFunction<Row, Tuple2<Integer, Right>> {
        private final int[] keys;
        private int next;

        DealRight(int[] keys) {
            this.keys = keys;
        }

        @Override
        public void flatMap(Row row, Collector<Tuple2<Integer, Right>> out) {
            if (row instanceof Right right) {
                out.collect(Tuple2.of(keys[next], right));
                next = (next + 1) % keys.length;
            }
        }
    }

    private static final class Band
            extends ProcessJoinFunction<Tuple2<Integer, Left>, Tuple2<Integer, Right>, Match> {
        private final long band;

        Band(long band) {
            this.band = band;
        }

        @Override
        public void processElement(
                Tuple2<Integer, Left> left, Tuple2<Integer, Right> right, Context context, Collector<Match> out) {
            if (Math.abs(left.f1.x - right.f1.a) <= band && Math.abs(left.f1.y - right.f1.b) <= band) {
                out.collect(new Match(context.getTimestamp() + 1, left.f1, right.f1));
            }
        }
    }

    @Override
    public Workload<Row> read(DataInputStream in, int events) throws IOException {
        long[] ts = Workload.longs(in, events);
        long[] stream = Workload.longs(in, events);
        long[] x = Workload.longs(in, events);
        double[] y = Workload.doubles(in, events);
        long[] a = Workload.longs(in, events);
        double[] b = Workload.doubles(in, events);
        double[] c = Workload.doubles(in, events);
        long[] d = Workload.longs(in, events);
        Row[] rows = new Row[events];
        for (int i = 0; i < events; i++) {
            if (stream[i] == 0) {
                var left = new Left();
                left.seq = i;
                left.x = x[i];
                left.y = y[i];
                rows[i] = left;
            } else {
                var right = new Right();
                right.seq = i;
                right.a = a[i];
                right.b = b[i];
                right.c = c[i];
                right.d = d[i] != 0;
                rows[i] = right;
            }
        }
        return new Workload<>(rows, ts, Workload.FEW);
    }

    @Override
    public int sources(int threads) {
        return threads;
    }

    @Override
    public void build(StreamExecutionEnvironment env) {
        int[] keys = keys(env.getParallelism());
        // A watermark lets the join forget rows. With 16 in a window, the join keeps few rows longer than needed.
        DataStream<Row> rows = Application.withTime(env, Row.class, 0, Math.max(1, size / 16));
        rows.flatMap(new CopyLeft(keys))
                .keyBy(row -> row.f0)
                .intervalJoin(rows.flatMap(new DealRight(keys)).keyBy(row -> row.f0))
                .between(Duration.ofMillis(1 - size), Duration.ofMillis(size - 1))
                .process(new Band(band))
                .sinkTo(new DigestSink<>());
    }

    /** Returns a key for each subtask: Flink hashes it to that subtask. */
    private static int[] keys(int subtasks) {
        int groups = KeyGroupRangeAssignment.computeDefaultMaxParallelism(subtasks);
        int[] keys = new int[subtasks];
        for (int subtask = 0; subtask < subtasks; subtask++) {
            while (KeyGroupRangeAssignment.assignKeyToParallelOperator(keys[subtask], groups, subtasks) != subtask) {
                keys[subtask]++;
            }
        }
        return keys;
    }
}
