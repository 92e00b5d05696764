package lockstep;

import java.io.IOException;
import java.util.Arrays;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;

/** A sink that digests the rows, and measures how long ago the events were emitted that caused them. */
final class DigestSink<T extends Output> implements Sink<T> {

    private static final class Writer<T extends Output> implements SinkWriter<T> {
        private final Pass pass = Pass.current;
        private final Rows rows;
        private float[] latencies = new float[1024];
        private int timed;

        Writer(int subtask) throws IOException {
            rows = pass.rows(subtask);
            pass.open();
        }

        @Override
        public void write(T row, Context context) throws IOException {
            row.writeTo(rows);
            rows.endRow();
            long cause = row.cause();
            if (cause >= 0 && pass.isTimed(cause)) {
                if (timed == latencies.length) {
                    latencies = Arrays.copyOf(latencies, 2 * timed);
                }
                latencies[timed++] = pass.latencyUs(cause);
            }
        }

        @Override
        public void flush(boolean endOfInput) throws IOException {
            if (endOfInput) {
                rows.close();
                pass.close(rows, Arrays.copyOf(latencies, timed));
            }
        }

        @Override
        public void close() {}
    }

    @Override
    public SinkWriter<T> createWriter(WriterInitContext context) throws IOException {
        return new Writer<>(context.getTaskInfo().getIndexOfThisSubtask());
    }
}
