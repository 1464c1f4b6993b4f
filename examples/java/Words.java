import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;

/**
 * Kafka Streams counts the words of the topic {@code lines}, and Rockmill compacts the store:
 *
 * <pre>
 * java -cp 'kafka-streams and what it needs:rockmill.jar:.' Words localhost:9092 /var/lib/words
 * </pre>
 */
public final class Words {
  static Properties properties(String broker, String folder) {
    Properties properties = new Properties();
    properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "words");
    properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, broker);
    properties.put(StreamsConfig.STATE_DIR_CONFIG, folder);
    properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
    properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.String().getClass());
    // These are all that Rockmill needs.
    properties.put(StreamsConfig.ROCKSDB_CONFIG_SETTER_CLASS_CONFIG, "org.rockmill.kafka.RockmillConfigSetter");
    properties.put("rockmill.device", "auto");
    properties.put("rockmill.memory_budget_bytes", "268435456");
    return properties;
  }

  static Topology topology() {
    StreamsBuilder builder = new StreamsBuilder();
    builder.<String, String>stream("lines")
        .flatMapValues(line -> java.util.List.of(line.split(" ")))
        .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
        .count(Materialized.as("counts"));
    return builder.build();
  }

  public static void main(String[] arguments) {
    KafkaStreams streams = new KafkaStreams(topology(), properties(arguments[0], arguments[1]));
    Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
    streams.start();
  }
}
