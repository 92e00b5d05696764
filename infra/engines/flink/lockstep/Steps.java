package lockstep;

import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;

/**
 * Watermarks of events in the order of time: one whenever the time passes a multiple of a step, plus an offset.
 *
 * <p>Flink's own generator emits a watermark every 200 ms of real time. A window would then leave so much later, and a
 * source that is faster than real time would let state grow.
 */
final class Steps<T> implements WatermarkGenerator<T> {
    private final long offset;
    private final long step;
    private long last = Long.MIN_VALUE;

    private Steps(long offset, long step) {
        this.offset = offset;
        this.step = step;
    }

    static <T> WatermarkStrategy<T> strategy(long offset, long step) {
        return WatermarkStrategy.forGenerator(context -> new Steps<>(offset, step));
    }

    @Override
    public void onEvent(T event, long ts, WatermarkOutput output) {
        long number = Math.floorDiv(ts - offset, step);
        if (number != last) {
            last = number;
            output.emitWatermark(new Watermark(ts - 1));
        }
    }

    @Override
    public void onPeriodicEmit(WatermarkOutput output) {}
}
