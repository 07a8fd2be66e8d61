import java.util.Map;
import java.util.Properties;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.javaapi.consumer.ConsumerConnector;

/** Kafka 0.8's consumer in a group: ZOOKEEPER GROUP TOPIC. Says "registered" and waits for messages until it is ended. */
public class OldConsumer {
  public static void main(String[] words) {
    Properties settings = new Properties();
    settings.put("zookeeper.connect", words[0]);
    settings.put("group.id", words[1]);
    settings.put("zookeeper.session.timeout.ms", "4000");
    settings.put("rebalance.backoff.ms", "500");
    settings.put("rebalance.max.retries", "20");
    settings.put("auto.offset.reset", "smallest");
    ConsumerConnector connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
    ConsumerIterator<byte[], byte[]> messages =
        connector.createMessageStreams(Map.of(words[2], 1)).get(words[2]).get(0).iterator();
    System.out.println("registered");
    while (messages.hasNext()) System.out.println(new String(messages.next().message()));
  }
}
