import java.nio.file.Path;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.rockmill.Rockmill;

/** A topology of Kafka Streams counts words with Rockmill as its configuration names it, without a broker. */
public final class StreamsDriver {
  private static final int RECORDS = 1_000;
  private static final int WORDS = 100;

  public static void main(String[] arguments) throws Exception {
    Properties properties = new Properties();
    properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "words");
    properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "nowhere:1");
    properties.put(StreamsConfig.STATE_DIR_CONFIG, Path.of(arguments[0]).toString());
    properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
    properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.String().getClass());
    properties.put(StreamsConfig.ROCKSDB_CONFIG_SETTER_CLASS_CONFIG, "org.rockmill.kafka.RockmillConfigSetter");
    properties.put("rockmill.min_job_bytes", "0");
    StreamsBuilder builder = new StreamsBuilder();
    builder.<String, String>stream("lines").groupByKey().count(Materialized.as("counts"));
    TreeMap<String, Long> expected = new TreeMap<>();
    try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), properties)) {
      TestInputTopic<String, String> input =
          driver.createInputTopic("lines", new StringSerializer(), new StringSerializer());
      for (int record = 0; record < RECORDS; ++record) {
        String word = "word" + (record * 7919L) % WORDS;
        input.pipeInput(word, "");
        expected.merge(word, 1L, Long::sum);
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
    }
    Rockmill rockmill = Rockmill.shared(java.util.Map.of("min_job_bytes", "0"));
    if (rockmill.stats().jobsDone() == 0) throw new AssertionError("nothing was done: " + rockmill.stats());
    System.out.println(
        "Kafka Streams: " + rockmill.stats().jobsDone() + " jobs done, " + rockmill.stats().jobsDeclinedByReason() + " declined");
  }
}
