package lockstep;

import java.io.DataInputStream;
import java.io.IOException;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** An application: how its events are read, and the Flink program. */
interface Application {

    /** Returns the application that a cell names, with its parameters. */
    static Application of(Properties cell) {
        String name = cell.getProperty("app");
        return switch (name) {
            case "wc" -> new Wc();
            case "sd" -> new Sd(cell);
            case "wordcount" -> new Wordcount(cell);
            case "scalejoin" -> new Scalejoin(cell);
            default -> throw new IllegalArgumentException("there is no application " + name);
        };
    }

    /** Reads the events, column by column, as run.py writes them. */
    Workload<?> read(DataInputStream in, int events) throws IOException;

    /** Returns the number of subtasks of the source: one, unless the application needs no order. */
    default int sources(int threads) {
        return 1;
    }

    /** Builds the program, from the source to the sink. */
    void build(StreamExecutionEnvironment env);

    /** Returns the events, dealt to the subtasks of the source. */
    static <T> SingleOutputStreamOperator<T> events(
            StreamExecutionEnvironment env, Class<T> type, WatermarkStrategy<T> watermarks) {
        return env.fromSource(new MemorySource<T>(), watermarks, "events", TypeInformation.of(type));
    }
}
