import java.io.DataInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.runtime.checkpoint.*;
import org.apache.flink.runtime.checkpoint.metadata.CheckpointMetadata;
import org.apache.flink.runtime.state.*;
import org.apache.flink.runtime.state.IncrementalKeyedStateHandle.HandleAndLocalPath;
import org.apache.flink.state.rocksdb.RocksDBOptionsFactory;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.DBOptions;

/**
 * A job of Flink with value and map state in RocksDB and incremental checkpoints, whose result is known: arguments are the
 * number of records, the folder of its checkpoints, one for logs, with or without, the parallelism, and the checkpoint to go
 * on from, or none.
 */
public final class Job {
  private static final int MAX_PARALLELISM = 16;
  private static final long SLOTS = 3;

  static final AtomicLong SEEN = new AtomicLong();
  /** By key, since a job that restarts at its end comes to a key again. */
  static final Map<Long, Long> DIGESTS = new ConcurrentHashMap<>();
  static final AtomicBoolean HAS_FAILED = new AtomicBoolean();

  public static void main(String[] arguments) throws Exception {
    long records = Long.parseLong(arguments[0]);
    if (arguments.length == 1) {
      System.out.println(model(records));
      return;
    }
    Path checkpoints = Path.of(arguments[1]);
    Path logs = Path.of(arguments[2]);
    int parallelism = Integer.parseInt(arguments[4]);
    Files.createDirectories(logs);
    Configuration configuration = new Configuration();
    configuration.setString("state.backend.type", "rocksdb");
    configuration.setString("state.backend.rocksdb.log.level", "INFO_LEVEL");
    configuration.setString("state.backend.rocksdb.log.dir", logs.toString());
    // RocksDB makes the name of a log of the whole path, and names have a limit.
    configuration.setString("state.backend.rocksdb.localdir", System.getProperty("java.io.tmpdir"));
    if (arguments[3].equals("with")) {
      configuration.setString("state.backend.rocksdb.options-factory", "org.rockmill.flink.RockmillOptionsFactory");
      configuration.setString("rockmill.options-factory", Factory.class.getName());
    } else {
      configuration.setString("state.backend.rocksdb.options-factory", Factory.class.getName());
    }
    configuration.setString("execution.checkpointing.incremental", "true");
    configuration.setString("execution.checkpointing.interval", "3s");
    configuration.setString("execution.checkpointing.dir", checkpoints.toUri().toString());
    configuration.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
    configuration.setString("restart-strategy.type", "fixed-delay");
    configuration.setString("restart-strategy.fixed-delay.attempts", "2");
    configuration.setString("restart-strategy.fixed-delay.delay", "1s");
    configuration.setString("taskmanager.memory.managed.size", "192m");
    boolean goesOn = arguments.length > 5;
    if (goesOn) configuration.setString("execution.state-recovery.path", arguments[5]);
    StreamExecutionEnvironment environment =
        StreamExecutionEnvironment.createLocalEnvironment(parallelism, configuration);
    environment.setMaxParallelism(MAX_PARALLELISM);
    GeneratorFunction<Long, Long> same = index -> index;
    environment
        .fromSource(
            new DataGeneratorSource<>(same, records, Types.LONG), WatermarkStrategy.noWatermarks(), "numbers")
        .uid("numbers")
        .keyBy(record -> key(record, records))
        .process(new Count(records, goesOn))
        .uid("count")
        .sinkTo(new DiscardingSink<>());
    Thread watch = new Thread(() -> watch(checkpoints, records));
    watch.setDaemon(true);
    watch.start();
    environment.execute();
    Measure.put("digest", DIGESTS.values().stream().mapToLong(Long::longValue).sum());
    Measure.write();
    System.out.println("done");
    System.exit(0);
  }

  static long key(long record, long records) {
    return (record * 0x9E3779B97F4A7C15L >>> 1) % Math.max(1, records / 4);
  }

  static String text(long record) {
    StringBuilder made = new StringBuilder();
    SplittableRandom random = new SplittableRandom(record);
    while (made.length() < 150) made.append(Long.toHexString(random.nextLong())).append("................");
    return made.toString();
  }

  /** The digest of a key's state. The sum of all digests does not depend on the order. */
  static long digest(long key, long count, Map<Long, Long> last) {
    long hash = key * 31 + count;
    for (long slot = 0; slot < SLOTS; ++slot) {
      hash = (hash ^ last.getOrDefault(slot, -1L)) * 0x100000001B3L;
      hash ^= hash >>> 29;
    }
    return hash * 0x9E3779B97F4A7C15L;
  }

  private static long model(long records) {
    Map<Long, long[]> keys = new HashMap<>();
    for (long record = 0; record < records; ++record) {
      long[] state = keys.computeIfAbsent(key(record, records), key -> new long[] {0, -1, -1, -1});
      ++state[0];
      int slot = (int) (1 + record % SLOTS);
      state[slot] = Math.max(state[slot], record);
    }
    long digest = 0;
    for (Map.Entry<Long, long[]> entry : keys.entrySet()) {
      Map<Long, Long> last = new HashMap<>();
      for (long slot = 0; slot < SLOTS; ++slot) {
        if (entry.getValue()[(int) slot + 1] >= 0) last.put(slot, entry.getValue()[(int) slot + 1]);
      }
      digest += digest(entry.getKey(), entry.getValue()[0], last);
    }
    return digest;
  }

  /** Counts, and keeps the last records of each key. At the end of the input it adds the key's state to the digests. */
  private static final class Count extends KeyedProcessFunction<Long, Long, Long> {
    private static final long serialVersionUID = 1;
    private static final long END = Long.MAX_VALUE - 1;

    private final long records;
    private final boolean fails;
    private transient ValueState<Long> count;
    private transient MapState<Long, String> last;

    Count(long records, boolean fails) {
      this.records = records;
      this.fails = fails;
    }

    @Override
    public void open(OpenContext context) throws Exception {
      count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Long.class));
      last = getRuntimeContext().getMapState(new MapStateDescriptor<>("last", Long.class, String.class));
      if (hasRockmill()) org.rockmill.flink.RockmillMetrics.register(getRuntimeContext().getMetricGroup());
    }

    private static boolean hasRockmill() {
      try {
        Class.forName("org.rockmill.Rockmill");
        return true;
      } catch (ClassNotFoundException error) {
        return false;
      }
    }

    @Override
    public void processElement(Long record, Context context, Collector<Long> out) throws Exception {
      long seen = SEEN.incrementAndGet();
      // The job restarts from its last checkpoint.
      if (fails && seen > records / 6 && HAS_FAILED.compareAndSet(false, true)) throw new IOException("on purpose");
      Long before = count.value();
      if (before == null) context.timerService().registerEventTimeTimer(END);
      count.update(before == null ? 1 : before + 1);
      String known = last.get(record % SLOTS);
      if (known == null || Long.parseLong(known.substring(0, known.indexOf('|'))) < record) {
        last.put(record % SLOTS, record + "|" + text(record));
      }
    }

    @Override
    public void onTimer(long time, OnTimerContext context, Collector<Long> out) throws Exception {
      Map<Long, Long> found = new HashMap<>();
      for (Map.Entry<Long, String> entry : last.entries()) {
        String value = entry.getValue();
        long record = Long.parseLong(value.substring(0, value.indexOf('|')));
        if (!value.substring(value.indexOf('|') + 1).equals(text(record))) throw new AssertionError(value);
        found.put(entry.getKey(), record);
      }
      DIGESTS.put(context.getCurrentKey(), digest(context.getCurrentKey(), count.value(), found));
    }
  }

  /** Notes the files of each complete checkpoint. */
  private static void watch(Path checkpoints, long records) {
    Set<Path> known = new HashSet<>();
    long files = 0;
    try {
      while (true) {
        for (Path metadata : complete(checkpoints)) {
          if (!known.add(metadata)) continue;
          long found = files(metadata);
          if (found < 0) continue;
          files += found;
          Measure.put("checkpoint", metadata.getParent().toString());
          Measure.put("checkpoints", known.size());
          Measure.put("files", found);
          Measure.put("mean_files", (double) files / known.size());
        }
        Measure.put("progress", (double) SEEN.get() / records);
        Thread.sleep(100);
      }
    } catch (Exception error) {
      error.printStackTrace();
      System.exit(1);
    }
  }

  private static List<Path> complete(Path checkpoints) throws IOException {
    if (!Files.exists(checkpoints)) return List.of();
    try (Stream<Path> all = Files.walk(checkpoints, 3)) {
      return all.filter(path -> path.getFileName().toString().equals("_metadata")).toList();
    } catch (java.io.UncheckedIOException error) {
      // Flink has removed one just now.
      return List.of();
    }
  }

  /** Returns the number of RocksDB's files in a checkpoint; -1 if it was removed. */
  private static long files(Path metadata) throws IOException {
    CheckpointMetadata read;
    try (DataInputStream in = new DataInputStream(Files.newInputStream(metadata))) {
      read = Checkpoints.loadCheckpointMetadata(in, Job.class.getClassLoader(), metadata.getParent().toUri().toString());
    } catch (java.nio.file.NoSuchFileException | java.io.EOFException error) {
      return -1;
    }
    long count = 0;
    for (OperatorState operator : read.getOperatorStates()) {
      for (OperatorSubtaskState subtask : operator.getStates()) {
        for (KeyedStateHandle handle : subtask.getManagedKeyedState()) {
          if (!(handle instanceof IncrementalRemoteKeyedStateHandle)) continue;
          IncrementalRemoteKeyedStateHandle files = (IncrementalRemoteKeyedStateHandle) handle;
          for (List<HandleAndLocalPath> some : List.of(files.getSharedState(), files.getPrivateState())) {
            for (HandleAndLocalPath one : some) {
              String name = one.getLocalPath();
              // A file of Rockmill's would never get here.
              if (!name.matches("[0-9]+\\.sst|MANIFEST-[0-9]+|OPTIONS-[0-9]+|CURRENT")) throw new AssertionError(name);
              if (name.endsWith(".sst")) ++count;
            }
          }
        }
      }
    }
    return count;
  }

  /** The program's own factory: RocksDB logs how long writes wait. */
  public static final class Factory implements RocksDBOptionsFactory {
    private static final long serialVersionUID = 1;

    @Override
    public DBOptions createDBOptions(DBOptions current, Collection<AutoCloseable> handles) {
      return current.setStatsDumpPeriodSec(5);
    }

    @Override
    public ColumnFamilyOptions createColumnOptions(ColumnFamilyOptions current, Collection<AutoCloseable> handles) {
      return current;
    }
  }

  static {
    String file = System.getProperty("measure");
    if (file != null) Measure.start(Path.of(file));
  }
}
