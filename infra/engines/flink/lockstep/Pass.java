package lockstep;

import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * The pass that runs now: its clock, its digest and its latencies.
 *
 * <p>Flink copies sources and sinks into its tasks. All tasks run in this process, so they find the pass in a static
 * field.
 *
 * <p>The clock starts when all sources and sinks are open: then the sources emit their first events. It stops when the
 * last sink has seen the end of the stream. So neither the submission of the job nor the start of its tasks counts.
 */
final class Pass {
    /** How long a source sleeps at most before it lets Flink's thread do other work. */
    static final long NAP_NS = 1_000_000;

    static volatile Pass current;

    final Workload<?> workload;
    final CompletableFuture<Void> ready = new CompletableFuture<>();
    private final Path rows;
    private final double rate;
    // When the source emitted each event that is timed. The sink reads what the source wrote before it passed the event
    // on through Flink's channels, which order the two.
    private final long[] emitted;
    private int unopened;
    private volatile long begin;
    private long end;
    private long count;
    private long sum;
    private final List<float[]> latencies = new ArrayList<>();

    /**
     * @param rows where sinks keep the rows, or null
     * @param rate events per second, or 0 for as many as Flink takes
     * @param tasks how many sources and sinks will open
     */
    Pass(Workload<?> workload, Path rows, double rate, int tasks) {
        this.workload = workload;
        this.rows = rows;
        this.rate = rate;
        this.unopened = tasks;
        this.emitted = new long[workload.events().length];
    }

    /** A source or a sink is open. */
    synchronized void open() {
        if (--unopened == 0) {
            begin = System.nanoTime();
            ready.complete(null);
        }
    }

    Rows rows(int sink) throws IOException {
        return new Rows(rows, sink);
    }

    /** Returns how many nanoseconds an event is still to come; not positive if it is due. */
    long pause(int event) {
        return rate == 0 ? 0 : arrival(event) - System.nanoTime();
    }

    void emit(int event) {
        if (isTimed(event)) {
            emitted[event] = rate == 0 ? System.nanoTime() : arrival(event);
        }
    }

    boolean isTimed(long event) {
        return rate > 0 || event % workload.timed() == 0;
    }

    float latencyUs(long event) {
        return (System.nanoTime() - emitted[(int) event]) / 1000f;
    }

    /** A sink has seen the end of the stream. */
    synchronized void close(Rows rows, float[] latencies) {
        count += rows.count;
        sum += rows.sum;
        this.latencies.add(latencies);
        end = System.nanoTime();
    }

    double seconds() {
        return (end - begin) / 1e9;
    }

    String report(String kind) {
        return "{\"kind\": \"%s\", \"events\": %d, \"outputs\": %d, \"digest\": \"%d:%016x\", \"seconds\": %s}"
                .formatted(kind, workload.events().length, count, count, sum, seconds());
    }

    void writeLatencies(Path path) throws IOException {
        try (var out = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(path)))) {
            for (float[] some : latencies) {
                for (float microseconds : some) {
                    out.writeFloat(microseconds);
                }
            }
        }
    }

    private long arrival(int event) {
        return begin + (long) (event * 1e9 / rate);
    }
}
