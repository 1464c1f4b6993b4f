import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.rockmill.Rockmill;
import org.rockmill.kafka.RockmillConfigSetter;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;

/** The example of Kafka Streams counts words without a broker. */
public final class StreamsDriver {
  private static final int RECORDS = 1_000;
  private static final int WORDS = 100;

  private static final ObjectName METRICS;

  /** A reporter that fails. */
  public static final class BrokenReporter implements MetricsReporter {
    static int made;
    static int closed;

    public BrokenReporter() {
      ++made;
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
      throw new IllegalStateException("this reporter is broken");
    }

    @Override
    public void metricChange(KafkaMetric metric) {}

    @Override
    public void metricRemoval(KafkaMetric metric) {}

    @Override
    public void close() {
      ++closed;
    }

    @Override
    public void configure(Map<String, ?> configs) {}
  }

  /** Stores have no part in the failure of a reporter, which is made and closed once for all of them. */
  private static void reporterFails() {
    Map<String, Object> configs = Map.of("application.id", "broken", "metric.reporters", BrokenReporter.class.getName());
    for (int store = 0; store < 3; ++store) {
      try (Options options = new Options()) {
        new RockmillConfigSetter().setConfig("store" + store, options, configs);
      }
    }
    if (BrokenReporter.made != 1 || BrokenReporter.closed == 0) {
      throw new AssertionError("reporters: " + BrokenReporter.made + " made, " + BrokenReporter.closed + " closed");
    }
  }

  public static void main(String[] arguments) throws Exception {
    RocksDB.loadLibrary();
    reporterFails();
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
