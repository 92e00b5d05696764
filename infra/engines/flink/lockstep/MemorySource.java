package lockstep;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * A source over the events of the workload. Of P subtasks, the one with number I emits events I, I + P, I + 2P and so on.
 *
 * <p>The number of a subtask says which events it emits, so there are no splits, and nothing to enumerate.
 */
final class MemorySource<T> implements Source<T, SourceSplit, Void> {

    private static final class Reader<T> implements SourceReader<T, SourceSplit> {
        private final Pass pass = Pass.current;
        private final T[] events;
        private final long[] ts;
        private final int step;
        private int event;

        @SuppressWarnings("unchecked")
        Reader(SourceReaderContext context) {
            events = (T[]) pass.workload.events();
            ts = pass.workload.ts();
            step = context.currentParallelism();
            event = context.getIndexOfSubtask();
        }

        @Override
        public void start() {
            pass.open();
        }

        @Override
        public InputStatus pollNext(ReaderOutput<T> output) {
            if (!pass.ready.isDone()) {
                return InputStatus.NOTHING_AVAILABLE;
            }
            if (event >= events.length) {
                return InputStatus.END_OF_INPUT;
            }
            long pause = pass.pause(event);
            if (pause > 0) {
                LockSupport.parkNanos(Math.min(pause, Pass.NAP_NS));
                return InputStatus.MORE_AVAILABLE;
            }
            pass.emit(event);
            if (ts == null) {
                output.collect(events[event]);
            } else {
                output.collect(events[event], ts[event]);
            }
            event += step;
            return InputStatus.MORE_AVAILABLE;
        }

        @Override
        public CompletableFuture<Void> isAvailable() {
            return pass.ready;
        }

        @Override
        public List<SourceSplit> snapshotState(long checkpoint) {
            return List.of();
        }

        @Override
        public void addSplits(List<SourceSplit> splits) {}

        @Override
        public void notifyNoMoreSplits() {}

        @Override
        public void close() {}
    }

    private static final class NoSplits implements SplitEnumerator<SourceSplit, Void> {
        @Override
        public void start() {}

        @Override
        public void handleSplitRequest(int subtask, String host) {}

        @Override
        public void addSplitsBack(List<SourceSplit> splits, int subtask) {}

        @Override
        public void addReader(int subtask) {}

        @Override
        public Void snapshotState(long checkpoint) {
            return null;
        }

        @Override
        public void close() {}
    }

    private static final class Unused<V> implements SimpleVersionedSerializer<V> {
        @Override
        public int getVersion() {
            return 0;
        }

        @Override
        public byte[] serialize(V value) {
            return new byte[0];
        }

        @Override
        public V deserialize(int version, byte[] bytes) {
            return null;
        }
    }

    @Override
    public Boundedness getBoundedness() {
        return Boundedness.BOUNDED;
    }

    @Override
    public SourceReader<T, SourceSplit> createReader(SourceReaderContext context) {
        return new Reader<>(context);
    }

    @Override
    public SplitEnumerator<SourceSplit, Void> createEnumerator(SplitEnumeratorContext<SourceSplit> context) {
        return new NoSplits();
    }

    @Override
    public SplitEnumerator<SourceSplit, Void> restoreEnumerator(
            SplitEnumeratorContext<SourceSplit> context, Void checkpoint) {
        return new NoSplits();
    }

    @Override
    public SimpleVersionedSerializer<SourceSplit> getSplitSerializer() {
        return new Unused<>();
    }

    @Override
    public SimpleVersionedSerializer<Void> getEnumeratorCheckpointSerializer() {
        return new Unused<>();
    }
}
