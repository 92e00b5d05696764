package lockstep;

import java.io.DataInputStream;
import java.io.IOException;
import java.util.Arrays;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.types.Value;
import org.apache.flink.util.Collector;

/** sd: compares each temperature reading with the moving average of its sensor. */
final class Sd implements Application {
    private static final long INVALID = Long.MIN_VALUE;

    private final int window;
    private final long threshold;

    Sd(Properties params) {
        window = Integer.parseInt(params.getProperty("window"));
        threshold = Long.parseLong(params.getProperty("threshold_e4"));
    }

    /** A valid reading, in 1/10000 degree. */
    public static final class Reading implements Value {
        public long seq;
        public int device;
        public long value;

        @Override
        public void write(DataOutputView out) throws IOException {
            out.writeLong(seq);
            out.writeInt(device);
            out.writeLong(value);
        }

        @Override
        public void read(DataInputView in) throws IOException {
            seq = in.readLong();
            device = in.readInt();
            value = in.readLong();
        }
    }

    /** The last readings of a device, in a ring. */
    public static final class Window {
        public long[] values = new long[16];
        public int size;
        public int oldest;
        public long total;

        void add(long value, int most) {
            total += value;
            if (size == most) {
                total -= values[oldest];
                values[oldest] = value;
                oldest = oldest + 1 == most ? 0 : oldest + 1;
                return;
            }
            if (size == values.length) {
                values = Arrays.copyOf(values, Math.min(2 * size, most));
            }
            values[size++] = value;
        }
    }

    /** A reading with the average of its device, the reading included. */
    public record Signal(long seq, int device, long average, long value, boolean spike) implements Output {
        @Override
        public void writeTo(Rows rows) throws IOException {
            rows.word(seq);
            rows.word(0);
            rows.word(device);
            rows.word(average);
            rows.word(value);
            rows.flag(spike);
        }

        @Override
        public long cause() {
            return seq;
        }
    }

    /** Reads lines `date time epoch mote temperature humidity light voltage`, and drops those that are invalid. */
    private static final class Parse implements FlatMapFunction<Line, Reading> {
        private final Reading reading = new Reading();

        @Override
        public void flatMap(Line line, Collector<Reading> out) {
            String text = line.text();
            long device = INVALID;
            long value = INVALID;
            int start = 0;
            for (int field = 0; field < 7; field++) {
                int stop = text.indexOf(' ', start);
                if (stop <= start) {
                    return;
                }
                if (field == 3) {
                    device = natural(text, start, stop);
                } else if (field == 4) {
                    value = decimal(text, start, stop);
                }
                start = stop + 1;
            }
            if (device == INVALID || value == INVALID || start >= text.length()) {
                return;
            }
            reading.seq = line.seq();
            reading.device = (int) device;
            reading.value = value;
            out.collect(reading);
        }

        /** Returns the number of one to nine digits, or INVALID. */
        private static long natural(String text, int start, int stop) {
            if (stop > start + 9) {
                return INVALID;
            }
            long number = 0;
            for (int at = start; at < stop; at++) {
                int digit = text.charAt(at) - '0';
                if (digit < 0 || digit > 9) {
                    return INVALID;
                }
                number = number * 10 + digit;
            }
            return number;
        }

        /** Returns [-]digits[.digits] in 1/10000, rounded towards 0; INVALID for other texts and from 10^5 on. */
        private static long decimal(String text, int start, int stop) {
            boolean negative = text.charAt(start) == '-';
            start += negative ? 1 : 0;
            long number = 0;
            int at = start;
            for (; at < stop && text.charAt(at) != '.'; at++) {
                int digit = text.charAt(at) - '0';
                if (digit < 0 || digit > 9) {
                    return INVALID;
                }
                number = number * 10 + digit;
            }
            if (at == start || at > start + 5 || at == stop - 1) {
                return INVALID;
            }
            number *= 10_000;
            long scale = 1000;
            for (at++; at < stop; at++) {
                int digit = text.charAt(at) - '0';
                if (digit < 0 || digit > 9) {
                    return INVALID;
                }
                number += digit * scale;
                scale /= 10;
            }
            return negative ? -number : number;
        }
    }

    private static final class Detect extends KeyedProcessFunction<Integer, Reading, Signal> {
        private final int most;
        private final long threshold;
        private transient ValueState<Window> state;

        Detect(int most, long threshold) {
            this.most = most;
            this.threshold = threshold;
        }

        @Override
        public void open(OpenContext context) {
            state = getRuntimeContext().getState(new ValueStateDescriptor<>("window", Window.class));
        }

        @Override
        public void processElement(Reading reading, Context context, Collector<Signal> out) throws IOException {
            Window window = state.value();
            if (window == null) {
                window = new Window();
            }
            window.add(reading.value, most);
            state.update(window);
            long distance = Math.abs(reading.value * window.size - window.total) * 10_000;
            boolean spike = distance > threshold * window.total;
            long average = Math.floorDiv(window.total, window.size);
            out.collect(new Signal(reading.seq, reading.device, average, reading.value, spike));
        }
    }

    @Override
    public Workload<Line> read(DataInputStream in, int events) throws IOException {
        return Workload.ofLines(in, events);
    }

    @Override
    public void build(StreamExecutionEnvironment env) {
        // Each key must see its events in order. So one subtask emits and parses them: several would overtake each other.
        Application.events(env, Line.class, WatermarkStrategy.noWatermarks())
                .setParallelism(1)
                .flatMap(new Parse())
                .setParallelism(1)
                .keyBy(reading -> reading.device)
                .process(new Detect(window, threshold))
                .sinkTo(new DigestSink<>());
    }
}
