import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.rockmill.Rockmill;

/** The example of Kafka Streams counts words without a broker. */
public final class StreamsDriver {
  private static final int RECORDS = 1_000;
  private static final int WORDS = 100;

  private static final ObjectName METRICS;

  public static void main(String[] arguments) throws Exception {
    Properties properties = Words.properties("nowhere:1", Path.of(arguments[0]).toString());
    properties.put("rockmill.min_job_bytes", "0");
    TreeMap<String, Long> expected = new TreeMap<>();
    try (TopologyTestDriver driver = new TopologyTestDriver(Words.topology(), properties)) {
      TestInputTopic<String, String> input =
          driver.createInputTopic("lines", new StringSerializer(), new StringSerializer());
      for (int record = 0; record < RECORDS; ++record) {
        String word = "word" + (record * 7919L) % WORDS;
        input.pipeInput(null, word + " " + word);
        expected.merge(word, 2L, Long::sum);
      }
      KeyValueStore<String, Long> counts = driver.getKeyValueStore("counts");
      TreeMap<String, Long> found = new TreeMap<>();
      try (KeyValueIterator<String, Long> all = counts.all()) {
        while (all.hasNext()) {
          KeyValue<String, Long> next = all.next();
          found.put(next.key, next.value);
        }
      }
      if (!found.equals(expected)) throw new AssertionError("the counts differ");
      // Kafka's reporter for JMX has the service's counters, for as long as there are stores.
      MBeanServer server = ManagementFactory.getPlatformMBeanServer();
      if (((Number) server.getAttribute(METRICS, "jobs-done")).longValue() == 0) throw new AssertionError("jobs-done is 0");
    }
    if (ManagementFactory.getPlatformMBeanServer().isRegistered(METRICS)) throw new AssertionError("the metrics stay");
    Rockmill rockmill = Rockmill.shared(Map.of("device", "auto", "memory_budget_bytes", "268435456", "min_job_bytes", "0"));
    if (rockmill.stats().jobsDone() == 0) throw new AssertionError("nothing was done: " + rockmill.stats());
    System.out.println(
        "Kafka Streams: " + rockmill.stats().jobsDone() + " jobs done, " + rockmill.stats().jobsDeclinedByReason() + " declined");
  }

  static {
    try {
      METRICS = new ObjectName("kafka.streams:type=rockmill-metrics,application-id=words");
    } catch (Exception error) {
      throw new AssertionError(error);
    }
  }
}
