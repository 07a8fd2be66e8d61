// A stock Java client that does what it is told on stdin, one command a line, and answers on stdout; run from source
// with Kafka's jars on the class path. Values travel in base64. Every answer ends with "done", or with "failed" and why.
// Before each command stands the broker's address, as FILE@ADDRESS with a file of further settings:
//
//   produce TOPIC CODEC IDEMPOTENT COUNT          then COUNT lines, one value each
//   consume TOPIC KIND AT COUNT PAUSE             KIND: start, end, time, offset; with PAUSE "there" is said once the
//                                                 place is known, and reading begins when a line has come;
//                                                 answers "record OFFSET VALUE"..., "position POSITION END"
//   group TOPIC GROUP COUNT                       joins, reads, commits and leaves; answers "record OFFSET VALUE"...
//   match PATTERN GROUP                           joins and leaves; answers "topic NAME"... of what it was assigned
//   transact TRANSACTIONAL_ID                     answers "refused WHY"
//   create TOPIC PARTITIONS [NAME=VALUE]...
//   delete TOPIC

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Matrix {
    static final int PATIENCE_S = 40;
    static final BufferedReader in = new BufferedReader(new InputStreamReader(System.in));

    public static void main(String[] arguments) throws Exception {
        String line;
        while ((line = in.readLine()) != null) {
            String[] words = line.split(" ");
            try {
                switch (words[1]) {
                    case "produce" -> produce(words);
                    case "consume" -> consume(words);
                    case "group" -> group(words);
                    case "match" -> match(words);
                    case "transact" -> transact(words);
                    case "create" -> create(words);
                    case "delete" -> delete(words);
                    default -> throw new IllegalArgumentException(line);
                }
                say("done");
            } catch (Throwable problem) {
                say("failed " + problem.toString().replace('\n', ' '));
            }
        }
    }

    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static Properties settings(String where) throws IOException {
        Properties settings = new Properties();
        int at = where.lastIndexOf('@');
        if (at >= 0) {
            try (Reader file = Files.newBufferedReader(Path.of(where.substring(0, at)))) {
                settings.load(file);
            }
        }
        settings.put("bootstrap.servers", where.substring(at + 1));
        return settings;
    }

    static void produce(String[] words) throws Exception {
        Properties settings = settings(words[0]);
        settings.put("compression.type", words[3]);
        settings.put("enable.idempotence", words[4]);
        settings.put("acks", "all");
        settings.put("linger.ms", "100");
        List<byte[]> values = new ArrayList<>();
        for (int left = Integer.parseInt(words[5]); left > 0; left--) {
            values.add(Base64.getDecoder().decode(in.readLine()));
        }
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (byte[] value : values) {
                sent.add(producer.send(new ProducerRecord<>(words[2], 0, null, value)));
            }
            for (Future<RecordMetadata> one : sent) {
                one.get(PATIENCE_S, TimeUnit.SECONDS);
            }
        }
    }

    static void consume(String[] words) throws Exception {
        Properties settings = settings(words[0]);
        settings.put("auto.offset.reset", "none");
        TopicPartition partition = new TopicPartition(words[2], 0);
        long at = Long.parseLong(words[4]);
        int count = Integer.parseInt(words[5]);
        settings.put("max.poll.records", String.valueOf(count));
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            switch (words[3]) {
                case "start" -> consumer.seekToBeginning(List.of(partition));
                case "end" -> consumer.seekToEnd(List.of(partition));
                case "offset" -> consumer.seek(partition, at);
                case "time" -> consumer.seek(
                    partition, consumer.offsetsForTimes(Map.of(partition, at)).get(partition).offset());
                default -> throw new IllegalArgumentException(words[3]);
            }
            consumer.position(partition);
            if (words[6].equals("true")) {
                say("there");
                in.readLine();
            }
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
            int read = 0;
            while (read < count) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(read + " of " + count + " records");
                }
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(500))) {
                    say("record " + one.offset() + " " + Base64.getEncoder().encodeToString(one.value()));
                    read++;
                }
            }
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            say("position " + consumer.position(partition) + " " + end);
        }
    }

    static void group(String[] words) throws Exception {
        int count = Integer.parseInt(words[4]);
        Properties settings = settings(words[0]);
        settings.put("group.id", words[3]);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", String.valueOf(count));
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(words[2]));
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
            int read = 0;
            while (read < count) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(read + " of " + count + " records");
                }
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(500))) {
                    say("record " + one.offset() + " " + Base64.getEncoder().encodeToString(one.value()));
                    read++;
                }
            }
            consumer.commitSync();
        }
    }

    static void match(String[] words) throws Exception {
        Properties settings = settings(words[0]);
        settings.put("group.id", words[3]);
        settings.put("enable.auto.commit", "false");
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(Pattern.compile(words[2]));
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
            while (consumer.assignment().isEmpty()) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("nothing was assigned");
                }
                consumer.poll(Duration.ofMillis(500));
            }
            for (TopicPartition one : consumer.assignment()) {
                say("topic " + one.topic());
            }
        }
    }

    static void transact(String[] words) throws Exception {
        Properties settings = settings(words[0]);
        settings.put("transactional.id", words[2]);
        settings.put("max.block.ms", String.valueOf(PATIENCE_S * 1000));
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
        } catch (KafkaException refused) {
            say("refused " + refused.toString().replace('\n', ' '));
            return;
        }
        throw new IllegalStateException("it may transact");
    }

    static void create(String[] words) throws Exception {
        Map<String, String> given = new HashMap<>();
        for (int index = 4; index < words.length; index++) {
            String[] pair = words[index].split("=", 2);
            given.put(pair[0], pair[1]);
        }
        NewTopic topic = new NewTopic(words[2], Integer.parseInt(words[3]), (short) 1).configs(given);
        try (Admin admin = Admin.create(settings(words[0]))) {
            admin.createTopics(List.of(topic)).all().get(PATIENCE_S, TimeUnit.SECONDS);
        }
    }

    static void delete(String[] words) throws Exception {
        try (Admin admin = Admin.create(settings(words[0]))) {
            admin.deleteTopics(List.of(words[2])).all().get(PATIENCE_S, TimeUnit.SECONDS);
        }
    }
}
