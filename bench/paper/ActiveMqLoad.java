import jakarta.jms.BytesMessage;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.io.File;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.store.kahadb.KahaDBPersistenceAdapter;

/**
 * ActiveMQ as the paper has it: a broker in a process of its own, or a client of its own API in another.
 *
 * <pre>
 *   broker  PORT FOLDER SYNC                       until it is killed or told to end; SYNC: ALWAYS, PERIODIC, NEVER
 *   produce PORT QUEUE MESSAGES LIMIT_MS BATCH     BATCH above 1: so many messages a transaction
 *   consume PORT QUEUE MESSAGES LIMIT_MS ACK       ACK: each, lazily
 * </pre>
 *
 * A client prints {@code SECONDS MESSAGES} ten times a second and at its end.
 */
public class ActiveMqLoad {
  static final int VALUE_BYTES = 200;
  static final long SAMPLE_NS = 100_000_000L;
  static long began;
  static long sampled;

  public static void main(String[] args) throws Exception {
    int port = Integer.parseInt(args[1]);
    switch (args[0]) {
      case "broker" -> broker(port, new File(args[2]), args[3]);
      case "produce" -> produce(port, args[2], Long.parseLong(args[3]), Long.parseLong(args[4]), Integer.parseInt(args[5]));
      case "consume" -> consume(port, args[2], Long.parseLong(args[3]), Long.parseLong(args[4]), args[5].equals("each"));
      default -> throw new IllegalArgumentException(args[0]);
    }
  }

  static void broker(int port, File folder, String sync) throws Exception {
    KahaDBPersistenceAdapter store = new KahaDBPersistenceAdapter();
    store.setDirectory(folder);
    store.setJournalDiskSyncStrategy(sync);
    BrokerService broker = new BrokerService();
    broker.setBrokerName("paper");
    broker.setUseJmx(false);
    broker.setPersistenceAdapter(store);
    broker.setUseShutdownHook(true);
    broker.getSystemUsage().getStoreUsage().setLimit(16L << 30);
    broker.addConnector("tcp://127.0.0.1:" + port);
    broker.start();
    broker.waitUntilStarted();
    System.out.println("started");
    broker.waitUntilStopped();
  }

  static ActiveMQConnection connect(int port, String options) throws Exception {
    ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory("tcp://127.0.0.1:" + port + options);
    factory.setTrustAllPackages(false);
    ActiveMQConnection connection = (ActiveMQConnection) factory.createConnection();
    connection.start();
    return connection;
  }

  static void produce(int port, String queue, long messages, long limitMs, int batch) throws Exception {
    ActiveMQConnection connection = connect(port, "?jms.useAsyncSend=true&jms.producerWindowSize=1048576");
    boolean transacted = batch > 1;
    Session session =
        connection.createSession(transacted, transacted ? Session.SESSION_TRANSACTED : Session.AUTO_ACKNOWLEDGE);
    MessageProducer producer = session.createProducer(session.createQueue(queue));
    producer.setDeliveryMode(DeliveryMode.PERSISTENT);
    producer.setDisableMessageTimestamp(false);
    byte[] value = new byte[VALUE_BYTES];
    java.util.Arrays.fill(value, (byte) 'v');
    long sent = 0;
    begin();
    while (sent < messages && goesOn(sent, limitMs)) {
      BytesMessage message = session.createBytesMessage();
      message.writeBytes(value);
      producer.send(message);
      if (++sent % batch == 0 && transacted) session.commit();
    }
    if (transacted) session.commit();
    // A message that is sent synchronously is answered when those before it are in the store.
    connection.setUseAsyncSend(false);
    connection.setAlwaysSyncSend(true);
    BytesMessage last = session.createBytesMessage();
    last.writeBytes(value);
    producer.send(last);
    if (transacted) session.commit();
    tell(sent + 1);
    connection.close();
  }

  static void consume(int port, String queue, long messages, long limitMs, boolean each) throws Exception {
    ActiveMQConnection connection = connect(port, "");
    int mode = each ? ActiveMQSession.INDIVIDUAL_ACKNOWLEDGE : Session.DUPS_OK_ACKNOWLEDGE;
    Session session = connection.createSession(false, mode);
    MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
    long read = 0;
    Message first = consumer.receive(30_000);
    if (first == null) throw new IllegalStateException("nothing came from " + queue + " within 30 s");
    begin();
    if (each) first.acknowledge();
    while (read < messages && goesOn(read, limitMs)) {
      Message message = consumer.receive(2_000);
      if (message == null) break;
      if (((BytesMessage) message).getBodyLength() != VALUE_BYTES) throw new IllegalStateException("another message");
      if (each) message.acknowledge();
      read++;
    }
    tell(read);
    connection.close();
  }

  static void begin() {
    began = sampled = System.nanoTime();
  }

  static boolean goesOn(long messages, long limitMs) {
    if (messages % 50 != 0) return true;
    long now = System.nanoTime();
    if (now - sampled >= SAMPLE_NS) {
      sampled = now;
      tell(messages);
    }
    return now - began < limitMs * 1_000_000L;
  }

  static void tell(long messages) {
    System.out.printf("%.6f %d%n", (System.nanoTime() - began) / 1e9, messages);
  }
}
