import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.*;
import org.rocksdb.InfoLogLevel;
import org.rocksdb.Options;

/**
 * An application of Kafka Streams with three stores for each of four partitions, whose content is known: {@code produce},
 * {@code model}, or {@code run} with the folder of its state and the name of the application.
 */
public final class Streams {
  private static final int PARTITIONS = 4;
  private static final int VALUE_BYTES = 1000;
  private static final long WINDOW_MS = 60_000;
  private static final int STANDBY_S = 600;
  private static final String INPUT = "input";

  private static String broker;
  private static long records;
  private static long base;

  public static void main(String[] arguments) throws Exception {
    broker = arguments[1];
    records = Long.parseLong(arguments[2]);
    Path folder = Path.of(arguments[3]);
    Path begun = folder.resolve("base");
    if (arguments[0].equals("produce")) {
      // Brokers delete what is old.
      Files.writeString(begun, Long.toString(System.currentTimeMillis() / WINDOW_MS * WINDOW_MS));
    }
    base = Long.parseLong(Files.readString(begun));
    if (arguments[0].equals("produce")) produce();
    if (arguments[0].equals("model")) System.out.println(model());
    if (arguments[0].equals("run")) run(folder.resolve(arguments[4]), arguments[4], Path.of(arguments[5]), arguments[6]);
  }

  private static long keys() {
    return Math.max(1, records / 3);
  }

  private static long key(long record) {
    return (record * 0x9E3779B97F4A7C15L >>> 1) % keys();
  }

  private static byte[] keyBytes(long key) {
    return ByteBuffer.allocate(Long.BYTES).putLong(key).array();
  }

  private static byte[] value(long record) {
    byte[] made = new byte[VALUE_BYTES];
    new SplittableRandom(record).nextBytes(made);
    Arrays.fill(made, VALUE_BYTES / 2, VALUE_BYTES, (byte) record);
    return made;
  }

  private static void produce() throws Exception {
    Properties properties = new Properties();
    properties.put("bootstrap.servers", broker);
    properties.put("key.serializer", ByteArraySerializer.class);
    properties.put("value.serializer", ByteArraySerializer.class);
    properties.put("linger.ms", "20");
    properties.put("batch.size", "200000");
    try (Admin admin = Admin.create(properties)) {
      NewTopic topic = new NewTopic(INPUT, PARTITIONS, (short) 1);
      admin.createTopics(List.of(topic.configs(Map.of("retention.ms", "-1")))).all().get();
    }
    try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
      for (long record = 0; record < records; ++record) {
        producer.send(new ProducerRecord<>(INPUT, null, base + record, keyBytes(key(record)), value(record)));
      }
    }
  }

  /** A digest that does not depend on the order. */
  private static long digest(byte[] key, long more, byte[] value) {
    long hash = more + 0x632BE59BD9B4E019L;
    for (byte[] bytes : new byte[][] {key, value}) {
      for (byte b : bytes) hash = (hash ^ b) * 0x100000001B3L;
      hash ^= hash >>> 29;
    }
    return hash * 0x9E3779B97F4A7C15L;
  }

  private static byte[] longBytes(long value) {
    return keyBytes(value);
  }

  private static String model() {
    int windows = (int) (records / WINDOW_MS + 1);
    int[][] counts = new int[windows][(int) keys()];
    long[] last = new long[(int) keys()];
    for (long record = 0; record < records; ++record) {
      int key = (int) key(record);
      ++counts[(int) (record / WINDOW_MS)][key];
      last[key] = record;
    }
    long digest = 0;
    long windowed = 0;
    long lasts = 0;
    for (int key = 0; key < keys(); ++key) {
      long count = 0;
      for (int window = 0; window < windows; ++window) {
        if (counts[window][key] == 0) continue;
        count += counts[window][key];
        windowed += digest(keyBytes(key), window * WINDOW_MS, longBytes(counts[window][key]));
      }
      if (count == 0) continue;
      digest += digest(keyBytes(key), 0, longBytes(count));
      lasts += digest(keyBytes(key), 0, value(last[key]));
    }
    return digest + " " + lasts + " " + windowed;
  }

  private static Topology topology() {
    StreamsBuilder builder = new StreamsBuilder();
    KGroupedStream<byte[], byte[]> grouped = builder.<byte[], byte[]>stream(INPUT).groupByKey();
    grouped.count(Materialized.as("counts"));
    grouped.reduce((before, after) -> after, Materialized.as("lasts"));
    grouped
        .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMillis(WINDOW_MS)))
        .count(Materialized.<byte[], Long, WindowStore<org.apache.kafka.common.utils.Bytes, byte[]>>as("windows")
            .withRetention(Duration.ofDays(1)));
    return builder.build();
  }

  private static void run(Path state, String application, Path logs, String setter) throws Exception {
    Properties properties = new Properties();
    properties.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
    properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, broker);
    properties.put(StreamsConfig.STATE_DIR_CONFIG, state.toString());
    properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
    properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
    properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "1000");
    properties.put("auto.offset.reset", "earliest");
    properties.put("session.timeout.ms", "6000");
    properties.put("heartbeat.interval.ms", "1000");
    properties.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, Boolean.getBoolean("standby") ? 1 : 0);
    properties.put("logs", logs.toString());
    Files.createDirectories(logs);
    if (setter.equals("with")) {
      properties.put(StreamsConfig.ROCKSDB_CONFIG_SETTER_CLASS_CONFIG, "org.rockmill.kafka.RockmillConfigSetter");
      properties.put("rockmill.config.setter", Setter.class.getName());
    } else {
      properties.put(StreamsConfig.ROCKSDB_CONFIG_SETTER_CLASS_CONFIG, Setter.class);
    }
    long[] restore = {Long.MAX_VALUE, 0, 0};
    List<KafkaStreams> instances = new ArrayList<>();
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", broker))) {
      instances.add(start(properties, restore));
      while (!isDone(admin, application)) Thread.sleep(200);
      // A stop of the broker makes the group gather anew.
      waitUntilRunning(instances);
      Measure.put("restore_s", restore[1] == 0 ? 0 : (restore[1] - restore[0]) / 1e9);
      Measure.put("restored", restore[2]);
      Measure.put("digest", text(digest(instances, false)));
      Measure.put("metrics", metrics());
      Measure.write();
      if (Boolean.getBoolean("standby")) {
        String once = text(digest(instances, false));
        // Another instance has a standby for each task of the first, or takes over some and has standbys for the rest.
        properties.put(StreamsConfig.STATE_DIR_CONFIG, state.resolve("standby").toString());
        instances.add(start(properties, restore));
        for (int tries = 0; !areTwice(instances, once); ++tries) {
          if (tries == STANDBY_S) throw new AssertionError("the standbys have not followed");
          Thread.sleep(1000);
        }
        Measure.put("standby", once);
        Measure.write();
      }
    } finally {
      instances.forEach(KafkaStreams::close);
    }
    Measure.write();
    System.out.println("done");
  }

  private static KafkaStreams start(Properties properties, long[] restore) {
    KafkaStreams streams = new KafkaStreams(topology(), properties);
    streams.setUncaughtExceptionHandler(
        error -> {
          error.printStackTrace();
          return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse
              .REPLACE_THREAD;
        });
    streams.setGlobalStateRestoreListener(new Restores(restore));
    streams.start();
    return streams;
  }

  private static void waitUntilRunning(List<KafkaStreams> instances) throws InterruptedException {
    for (KafkaStreams streams : instances) {
      while (streams.state() != KafkaStreams.State.RUNNING) Thread.sleep(200);
    }
  }

  /** Returns whether each store is there once as that of a task, and twice with the standbys, with this content. */
  private static boolean areTwice(List<KafkaStreams> instances, String once) {
    long[] all = digest(instances, true);
    for (int at = 0; at < all.length; ++at) all[at] -= Long.parseLong(once.split(" ")[at]);
    return text(digest(instances, false)).equals(once) && text(all).equals(once);
  }

  private static String text(long[] digests) {
    return digests[0] + " " + digests[1] + " " + digests[2];
  }

  /** The counter that Kafka's JMX reporter shows. */
  private static String metrics() throws Exception {
    var server = java.lang.management.ManagementFactory.getPlatformMBeanServer();
    var names = server.queryNames(new javax.management.ObjectName("kafka.streams:type=rockmill-metrics,*"), null);
    return names.isEmpty() ? "" : String.valueOf(server.getAttribute(names.iterator().next(), "jobs-done"));
  }

  private static boolean isDone(Admin admin, String application) throws Exception {
    try {
      Map<TopicPartition, OffsetAndMetadata> committed =
          admin.listConsumerGroupOffsets(application).partitionsToOffsetAndMetadata().get();
      long sum = 0;
      for (OffsetAndMetadata offset : committed.values()) sum += offset == null ? 0 : offset.offset();
      Measure.put("progress", (double) sum / records);
      return sum == records;
    } catch (java.util.concurrent.ExecutionException error) {
      // The broker is away.
      return false;
    }
  }

  /** The sums of the digests of the three stores, over all instances; with the standbys as well. */
  private static long[] digest(List<KafkaStreams> instances, boolean withStandbys) {
    long[] sums = new long[3];
    for (KafkaStreams streams : instances) {
      try {
        long[] own = digest(streams, withStandbys);
        for (int at = 0; at < sums.length; ++at) sums[at] += own[at];
      } catch (org.apache.kafka.streams.errors.InvalidStateStoreException error) {
        // It has no such store now.
      }
    }
    return sums;
  }

  private static <T> StoreQueryParameters<T> store(String name, QueryableStoreType<T> type, boolean withStandbys) {
    StoreQueryParameters<T> made = StoreQueryParameters.fromNameAndType(name, type);
    return withStandbys ? made.enableStaleStores() : made;
  }

  private static long[] digest(KafkaStreams streams, boolean withStandbys) {
    long counts = 0;
    long lasts = 0;
    long windows = 0;
    ReadOnlyKeyValueStore<byte[], Long> first =
        streams.store(store("counts", QueryableStoreTypes.keyValueStore(), withStandbys));
    try (KeyValueIterator<byte[], Long> all = first.all()) {
      while (all.hasNext()) {
        KeyValue<byte[], Long> next = all.next();
        counts += digest(next.key, 0, longBytes(next.value));
      }
    }
    ReadOnlyKeyValueStore<byte[], byte[]> second =
        streams.store(store("lasts", QueryableStoreTypes.keyValueStore(), withStandbys));
    try (KeyValueIterator<byte[], byte[]> all = second.all()) {
      while (all.hasNext()) {
        KeyValue<byte[], byte[]> next = all.next();
        lasts += digest(next.key, 0, next.value);
      }
    }
    ReadOnlyWindowStore<byte[], Long> third =
        streams.store(store("windows", QueryableStoreTypes.windowStore(), withStandbys));
    try (KeyValueIterator<Windowed<byte[]>, Long> all = third.all()) {
      while (all.hasNext()) {
        KeyValue<Windowed<byte[]>, Long> next = all.next();
        windows += digest(next.key.key(), next.key.window().start() - base, longBytes(next.value));
      }
    }
    return new long[] {counts, lasts, windows};
  }

  private static final class Restores implements StateRestoreListener {
    private final long[] restore;

    Restores(long[] restore) {
      this.restore = restore;
    }

    @Override
    public synchronized void onRestoreStart(TopicPartition partition, String store, long first, long end) {
      restore[0] = Math.min(restore[0], System.nanoTime());
    }

    @Override
    public void onBatchRestored(TopicPartition partition, String store, long end, long count) {}

    @Override
    public synchronized void onRestoreEnd(TopicPartition partition, String store, long count) {
      restore[1] = System.nanoTime();
      restore[2] += count;
    }
  }

  /** The program's own setter: RocksDB logs compactions and stalls outside of the state, which is removed. */
  public static final class Setter implements RocksDBConfigSetter {
    @Override
    public void setConfig(String store, Options options, Map<String, Object> configs) {
      options.setInfoLogLevel(InfoLogLevel.INFO_LEVEL);
      options.setDbLogDir(configs.get("logs").toString());
      options.setStatsDumpPeriodSec(5);
    }

    @Override
    public void close(String store, Options options) {}
  }

  static {
    String file = System.getProperty("measure");
    if (file != null) Measure.start(Path.of(file));
  }
}
