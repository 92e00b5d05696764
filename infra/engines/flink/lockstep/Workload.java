package lockstep;

import java.io.DataInputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;

/**
 * The events in memory, as Java objects.
 *
 * @param events the events, in order
 * @param ts their event times, or null if the application has no windows
 * @param timed in peak passes, the latency of one event in so many is measured
 */
record Workload<T>(T[] events, long[] ts, int timed) {
    /** A clock is read twice for each event that is timed, so few are. */
    static final int FEW = 64;

    static final int ALL = 1;

    /** Reads events that are only a text. */
    static Workload<Line> ofLines(DataInputStream in, int events) throws IOException {
        return new Workload<>(Line.of(texts(in, events)), null, FEW);
    }

    static long[] longs(DataInputStream in, int events) throws IOException {
        long[] values = new long[events];
        for (int i = 0; i < events; i++) {
            values[i] = in.readLong();
        }
        return values;
    }

    static double[] doubles(DataInputStream in, int events) throws IOException {
        double[] values = new double[events];
        for (int i = 0; i < events; i++) {
            values[i] = in.readDouble();
        }
        return values;
    }

    /** Reads texts. A text is any bytes; ISO 8859-1 makes each byte a character, so no byte is lost. */
    static String[] texts(DataInputStream in, int events) throws IOException {
        long[] lengths = longs(in, events);
        String[] texts = new String[events];
        for (int i = 0; i < events; i++) {
            texts[i] = new String(in.readNBytes((int) lengths[i]), StandardCharsets.ISO_8859_1);
        }
        return texts;
    }

    /** Returns the number of the first event at or after a time; the number of events if there is none. */
    int firstAt(long time) {
        int low = 0;
        int high = ts.length;
        while (low < high) {
            int middle = (low + high) >>> 1;
            if (ts[middle] < time) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }
}
