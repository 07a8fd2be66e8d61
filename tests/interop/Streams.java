// A Kafka Streams program, run from source with the jars of `bench.maven.frameworks` on the class path: it counts the
// messages of TOPIC by key, in a table (TOPIC-table), and by value in windows of an hour (TOPIC-windows), for which Streams
// sends them through a topic of its own. It says "running", or "failed" and why; it ends when stdin does.
// Arguments: BOOTSTRAP TOPIC STATE_FOLDER [NAME=VALUE]...

import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.TimeWindows;

public class Streams {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, topic);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", "6000"); // Streams does not leave its group: the next run waits for that
        for (String setting : Arrays.asList(arguments).subList(3, arguments.length)) {
            settings.put(setting.split("=", 2)[0], setting.split("=", 2)[1]);
        }

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> messages = builder.stream(topic);
        messages.groupByKey().count(Materialized.as("table"))
            .toStream().mapValues(count -> String.valueOf(count))
            .to(topic + "-table");
        messages.groupBy((key, value) -> value)
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofHours(1), Duration.ofDays(1)))
            .count(Materialized.as("windows"))
            .toStream((window, count) -> window.key() + "@" + window.window().start())
            .mapValues(count -> String.valueOf(count))
            .to(topic + "-windows");

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                System.out.println("running");
            }
        });
        streams.setUncaughtExceptionHandler(failure -> {
            Throwable cause = failure;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            System.out.println("failed " + cause);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        System.in.read();
        streams.close(Duration.ofSeconds(20));
    }
}
