package lockstep;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExecutionOptions;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.PipelineOptions;
import org.apache.flink.configuration.TaskManagerOptions;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Runs all passes of a cell, each as a Flink job of its own, on one cluster in this process. */
public final class Main {
    private final Path folder;
    private final Properties cell = new Properties();
    private final int threads;
    private final Application application;
    private final Workload<?> workload;
    private final Configuration configuration;
    private final List<String> reports = new ArrayList<>();

    private Main(Path folder) throws IOException {
        this.folder = folder;
        try (var in = Files.newBufferedReader(folder.resolve("cell.properties"))) {
            cell.load(in);
        }
        threads = Integer.parseInt(cell.getProperty("threads"));
        application = Application.of(cell);
        try (var in = new DataInputStream(new BufferedInputStream(Files.newInputStream(folder.resolve("events"))))) {
            workload = application.read(in, Integer.parseInt(cell.getProperty("events")));
        }
        configuration = configuration(threads);
    }

    /**
     * @param arguments a folder with {@code cell.properties} and {@code events}, which run.py wrote. The program adds
     *     the rows of the verified pass, the latencies of each pass, and last {@code passes}, a line of JSON for each.
     */
    public static void main(String[] arguments) {
        try {
            new Main(Path.of(arguments[0])).run();
        } catch (Throwable failure) {
            Throwable cause = failure;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            System.err.println("flink: " + cause);
            System.exit(1);
        }
        System.exit(0); // Flink leaves threads behind.
    }

    private static Configuration configuration(int threads) {
        var configuration = new Configuration();
        configuration.set(PipelineOptions.OBJECT_REUSE, true);
        // Flink's guide for low latencies; the default is 100 ms. A buffer that is full leaves at once anyway.
        configuration.set(ExecutionOptions.BUFFER_TIMEOUT, Duration.ofMillis(5));
        // Each subtask has a channel to each subtask of the next operator, and a channel has buffers of its own.
        MemorySize network = MemorySize.ofMebiBytes(64 + (long) threads * threads / 2);
        configuration.set(TaskManagerOptions.NETWORK_MEMORY_MIN, network);
        configuration.set(TaskManagerOptions.NETWORK_MEMORY_MAX, network);
        return configuration;
    }

    private void run() throws Exception {
        int repetitions = Integer.parseInt(cell.getProperty("repetitions"));
        double enough = repetitions * Double.parseDouble(cell.getProperty("seconds"));
        double rate = Double.parseDouble(cell.getProperty("rate"));
        try (var cluster = new MiniCluster(new MiniClusterConfiguration.Builder()
                .setConfiguration(configuration)
                .setNumSlotsPerTaskManager(threads)
                .withRandomPorts()
                .build())) {
            cluster.start();
            pass(cluster, "verified", folder, 0);
            double seconds = 0;
            for (int i = 0; i < repetitions || seconds < enough; i++) {
                seconds += pass(cluster, "peak", null, 0);
            }
            if (rate > 0) {
                pass(cluster, "open_loop", null, rate);
            }
        }
        Files.write(folder.resolve("passes"), reports);
    }

    /** Makes a pass, and returns how many seconds it took. */
    private double pass(MiniCluster cluster, String kind, Path rows, double rate) throws Exception {
        var env = StreamExecutionEnvironment.getExecutionEnvironment(configuration).setParallelism(threads);
        application.build(env);
        Pass.current = new Pass(workload, rows, rate, application.sources(threads) + threads);
        System.gc(); // What the last pass left behind is not this pass's to collect.
        cluster.executeJobBlocking(env.getStreamGraph().getJobGraph());
        Pass.current.writeLatencies(folder.resolve("latencies-" + reports.size()));
        reports.add(Pass.current.report(kind));
        return Pass.current.seconds();
    }
}
