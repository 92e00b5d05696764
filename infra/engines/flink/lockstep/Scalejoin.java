package lockstep;

import java.io.DataInputStream;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.types.Value;
import org.apache.flink.util.Collector;

/**
 * scalejoin: pairs of rows of two streams whose times and whose two columns are close to each other.
 *
 * <p>The condition compares no column for equality, so there is no natural key. The program deals the right rows to
 * artificial keys in turn, and copies each left row to all of them. So each pair meets once. There is a key for each
 * subtask: more keys would mean more copies. The parameter {@code keys} changes no pair.
 *
 * <p>Both streams go through one keyed stream, in the order of events. Flink's interval join has two inputs, and does not
 * keep them in step. At full speed, one input runs many windows ahead of the other. The join then compares each row with
 * everything that it has buffered, so it is several times as slow as this program.
 */
final class Scalejoin implements Application {
    private final long size;
    private final long band;

    Scalejoin(Properties params) {
        size = Long.parseLong(params.getProperty("size"));
        band = Long.parseLong(params.getProperty("band"));
    }

    /** A row of either stream. Of a left one, the columns are x and y; of a right one, a, b, c and d. */
    public static final class Row implements Value {
        public boolean isLeft;
        public long seq;
        public long ts;
        public long xa;
        public double yb;
        public double c;
        public boolean d;

        @Override
        public void write(DataOutputView out) throws IOException {
            out.writeBoolean(isLeft);
            out.writeLong(seq);
            out.writeLong(ts);
            out.writeLong(xa);
            out.writeDouble(yb);
            if (!isLeft) {
                out.writeDouble(c);
                out.writeBoolean(d);
            }
        }

        @Override
        public void read(DataInputView in) throws IOException {
            isLeft = in.readBoolean();
            seq = in.readLong();
            ts = in.readLong();
            xa = in.readLong();
            yb = in.readDouble();
            if (!isLeft) {
                c = in.readDouble();
                d = in.readBoolean();
            }
        }
    }

    /** A pair of rows; its time is one millisecond after the later one. */
    public record Match(Row earlier, Row later) implements Output {
        @Override
        public void writeTo(Rows rows) throws IOException {
            Row left = earlier.isLeft ? earlier : later;
            Row right = earlier.isLeft ? later : earlier;
            rows.word(later.ts + 1);
            rows.word(earlier.seq);
            rows.word(left.xa);
            rows.real(left.yb);
            rows.word(right.xa);
            rows.real(right.yb);
            rows.real(right.c);
            rows.flag(right.d);
        }

        @Override
        public long cause() {
            return later.seq;
        }
    }

    private static final class Deal implements FlatMapFunction<Row, Tuple2<Integer, Row>> {
        private final int[] keys;
        private final Tuple2<Integer, Row> keyed = new Tuple2<>();
        private int next;

        Deal(int[] keys) {
            this.keys = keys;
        }

        @Override
        public void flatMap(Row row, Collector<Tuple2<Integer, Row>> out) {
            keyed.f1 = row;
            if (row.isLeft) {
                for (int key : keys) {
                    keyed.f0 = key;
                    out.collect(keyed);
                }
            } else {
                keyed.f0 = keys[next];
                out.collect(keyed);
                next = (next + 1) % keys.length;
            }
        }
    }

    private static final class Join extends KeyedProcessFunction<Integer, Tuple2<Integer, Row>, Match> {
        private final long size;
        private final long band;
        private transient ValueState<ArrayDeque<Row>> lefts;
        private transient ValueState<ArrayDeque<Row>> rights;

        Join(long size, long band) {
            this.size = size;
            this.band = band;
        }

        @Override
        public void open(OpenContext context) {
            lefts = state("lefts");
            rights = state("rights");
        }

        private ValueState<ArrayDeque<Row>> state(String name) {
            var type = new TypeHint<ArrayDeque<Row>>() {}.getTypeInfo();
            return getRuntimeContext().getState(new ValueStateDescriptor<>(name, type));
        }

        @Override
        public void processElement(Tuple2<Integer, Row> keyed, Context context, Collector<Match> out)
                throws IOException {
            Row row = keyed.f1;
            for (Row other : recent(row.isLeft ? rights : lefts, row.ts)) {
                if (Math.abs(row.xa - other.xa) <= band && Math.abs(row.yb - other.yb) <= band) {
                    out.collect(new Match(other, row));
                }
            }
            recent(row.isLeft ? lefts : rights, row.ts).add(row);
        }

        /** Returns the rows of a stream that lie in one window with a row at a time, and forgets earlier ones. */
        private ArrayDeque<Row> recent(ValueState<ArrayDeque<Row>> state, long ts) throws IOException {
            ArrayDeque<Row> rows = state.value();
            if (rows == null) {
                rows = new ArrayDeque<>();
                state.update(rows);
            }
            while (!rows.isEmpty() && rows.peek().ts <= ts - size) {
                rows.remove();
            }
            return rows;
        }
    }

    @Override
    public Workload<Row> read(DataInputStream in, int events) throws IOException {
        Row[] rows = new Row[events];
        long[] ts = Workload.longs(in, events);
        long[] stream = Workload.longs(in, events);
        long[] x = Workload.longs(in, events);
        double[] y = Workload.doubles(in, events);
        long[] a = Workload.longs(in, events);
        double[] b = Workload.doubles(in, events);
        double[] c = Workload.doubles(in, events);
        long[] d = Workload.longs(in, events);
        for (int i = 0; i < events; i++) {
            Row row = new Row();
            row.isLeft = stream[i] == 0;
            row.seq = i;
            row.ts = ts[i];
            row.xa = row.isLeft ? x[i] : a[i];
            row.yb = row.isLeft ? y[i] : b[i];
            row.c = c[i];
            row.d = d[i] != 0;
            rows[i] = row;
        }
        return new Workload<>(rows, null, Workload.ALL); // Few rows have a match.
    }

    @Override
    public void build(StreamExecutionEnvironment env) {
        Application.events(env, Row.class, WatermarkStrategy.noWatermarks())
                .setParallelism(1)
                .flatMap(new Deal(keys(env.getParallelism())))
                .setParallelism(1)
                .keyBy(keyed -> keyed.f0)
                .process(new Join(size, band))
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
