import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.rockmill.Rockmill;
import org.rockmill.RockmillStats;
import org.rocksdb.*;

/**
 * Random histories on databases of a stock RocksJava with Rockmill, compared with a model. Each history ends with a reopen
 * without Rockmill. The same history runs without Rockmill as well, and the numbers of compactions are compared.
 *
 * <p>Arguments: an empty folder, the number of histories, and the first seed.
 */
public final class Histories {
  private static final int KEYS = 400;
  private static final int SINGLES = 40;
  private static final double MOST_JOBS = 1.5;

  private static final Pattern FINISHED = Pattern.compile("\"event\": \"compaction_finished\"");

  private static long checks;

  public static void main(String[] arguments) throws Exception {
    Path folder = Path.of(arguments[0]);
    int histories = Integer.parseInt(arguments[1]);
    long first = arguments.length > 2 ? Long.parseLong(arguments[2]) : System.nanoTime();
    RocksDB.loadLibrary();
    String version = RocksDB.rocksdbVersion().toString();
    long with = 0;
    long without = 0;
    try (Rockmill rockmill = Rockmill.builder().minJobBytes(0).threads(2).build()) {
      for (long seed = first; seed < first + histories; ++seed) {
        try {
          with += run(folder.resolve("with"), seed, rockmill);
          without += run(folder.resolve("without"), seed, null);
        } catch (Throwable error) {
          System.err.println("seed " + seed + ", RocksJava " + version + "; last decline: " + rockmill.lastError());
          error.printStackTrace();
          System.exit(1);
        }
      }
      RockmillStats stats = rockmill.stats();
      System.out.printf(
          "{\"rocksjava\":\"%s\",\"histories\":%d,\"checks\":%d,\"compactions\":%d,\"without\":%d,\"done\":%d,"
              + "\"declined\":%d,\"failed\":%d,\"declines\":\"%s\"}%n",
          version, histories, checks, with, without, stats.jobsDone(), stats.jobsDeclined(), stats.jobsFailed(),
          stats.jobsDeclinedByReason());
      check(stats.jobsFailed() == 0, "a job has failed: " + rockmill.lastError());
      check(stats.jobsDone() > histories, "too few jobs were done");
      check(stats.jobsOffered() >= stats.jobsDone() + stats.jobsDeclined(), "more jobs than RocksDB has offered");
      check(stats.readBytes() > 0 && stats.writtenBytes() > 0 && stats.jobCpuSeconds() > 0, "work without bytes or time");
      check(with <= MOST_JOBS * without + histories, with + " compactions, and " + without + " without Rockmill");
    }
  }

  private static void check(boolean holds, String what) {
    ++checks;
    if (!holds) throw new AssertionError(what);
  }

  /** Runs a history and returns the number of compactions. */
  private static long run(Path path, long seed, Rockmill rockmill) throws Exception {
    remove(path);
    Random random = new Random(seed);
    TreeMap<String, String> model = new TreeMap<>();
    boolean[] isThere = new boolean[SINGLES];
    int sessions = 1 + random.nextInt(3);
    long chosen = random.nextLong();
    for (int session = 0; session < sessions; ++session) {
      try (Database database = new Database(path, chosen, rockmill)) {
        step(database.db, random, model, isThere);
        compare(database.db, model, new ReadOptions());
      }
      check(!Files.exists(path.resolve("rockmill.staging")), "the staging folder stays");
    }
    try (Database database = new Database(path, chosen, null)) {
      compare(database.db, model, new ReadOptions());
      database.db.compactRange();
      compare(database.db, model, new ReadOptions());
    }
    return compactions(path);
  }

  private static void step(RocksDB db, Random random, TreeMap<String, String> model, boolean[] isThere)
      throws RocksDBException {
    Snapshot snapshot = null;
    TreeMap<String, String> then = null;
    try (WriteOptions write = new WriteOptions(); FlushOptions wait = new FlushOptions().setWaitForFlush(true)) {
      int steps = 200 + random.nextInt(1500);
      for (int at = 0; at < steps; ++at) {
        int kind = random.nextInt(1000);
        if (kind < 700) {
          String key = String.format("key%06d", random.nextInt(KEYS) * 37);
          byte[] value = new byte[random.nextInt(300)];
          random.nextBytes(value);
          db.put(write, key.getBytes(), value);
          model.put(key, text(value));
        } else if (kind < 850) {
          String key = String.format("key%06d", random.nextInt(KEYS) * 37);
          db.delete(write, key.getBytes());
          model.remove(key);
        } else if (kind < 930) {
          int single = random.nextInt(SINGLES);
          String key = "single" + single;
          if (isThere[single]) {
            db.singleDelete(write, key.getBytes());
            model.remove(key);
          } else {
            db.put(write, key.getBytes(), ("value" + at).getBytes());
            model.put(key, text(("value" + at).getBytes()));
          }
          isThere[single] = !isThere[single];
        } else if (kind < 985) {
          db.flush(wait);
        } else if (kind < 992) {
          db.compactRange();
        } else if (kind < 996) {
          byte[] from = String.format("key%06d", random.nextInt(KEYS) * 37).getBytes();
          byte[] to = String.format("key%06d", random.nextInt(KEYS) * 37).getBytes();
          if (Arrays.compare(from, to) < 0) db.compactRange(from, to);
        } else if (snapshot == null) {
          snapshot = db.getSnapshot();
          then = new TreeMap<>(model);
        } else {
          try (ReadOptions read = new ReadOptions().setSnapshot(snapshot)) {
            compare(db, then, read);
          }
          db.releaseSnapshot(snapshot);
          snapshot = null;
        }
      }
    } finally {
      if (snapshot != null) db.releaseSnapshot(snapshot);
    }
  }

  private static String text(byte[] bytes) {
    return new String(bytes, StandardCharsets.ISO_8859_1);
  }

  private static void compare(RocksDB db, TreeMap<String, String> model, ReadOptions read) {
    try (read; RocksIterator iterator = db.newIterator(read)) {
      iterator.seekToFirst();
      for (Map.Entry<String, String> entry : model.entrySet()) {
        check(iterator.isValid(), "the database ends before " + entry.getKey());
        check(text(iterator.key()).equals(entry.getKey()), text(iterator.key()) + " in place of " + entry.getKey());
        check(text(iterator.value()).equals(entry.getValue()), "another value of " + entry.getKey());
        iterator.next();
      }
      check(!iterator.isValid(), "the database has a key too many");
      iterator.status();
    } catch (RocksDBException error) {
      throw new AssertionError(error);
    }
  }

  /** A database whose options follow from a seed. */
  private static final class Database implements AutoCloseable {
    private final List<AutoCloseable> all = new ArrayList<>();
    final RocksDB db;

    Database(Path path, long seed, Rockmill rockmill) throws Exception {
      Random random = new Random(seed);
      BlockBasedTableConfig table = new BlockBasedTableConfig();
      table.setFormatVersion(2 + random.nextInt(4));
      table.setChecksumType(ChecksumType.values()[1 + random.nextInt(ChecksumType.values().length - 1)]);
      table.setBlockSize(256 << random.nextInt(5));
      if (random.nextBoolean()) table.setFilterPolicy(keep(new BloomFilter(10, false)));
      Options options = keep(new Options());
      options.setCreateIfMissing(true).setTableFormatConfig(table);
      options.setWriteBufferSize(64 << 10).setTargetFileSizeBase(32 << 10).setMaxBytesForLevelBase(64 << 10);
      options.setLevel0FileNumCompactionTrigger(2 + random.nextInt(4)).setMaxBackgroundJobs(3);
      options.setCompressionType(
          pick(random, CompressionType.NO_COMPRESSION, CompressionType.SNAPPY_COMPRESSION,
              CompressionType.LZ4_COMPRESSION, CompressionType.ZSTD_COMPRESSION, CompressionType.ZLIB_COMPRESSION));
      options.setCompactionStyle(pick(random, CompactionStyle.LEVEL, CompactionStyle.LEVEL, CompactionStyle.UNIVERSAL));
      options.setLevelCompactionDynamicLevelBytes(random.nextBoolean());
      options.setMaxSubcompactions(1 + random.nextInt(3));
      options.setParanoidFileChecks(random.nextInt(4) == 0);
      if (rockmill != null) rockmill.attach(options);
      db = RocksDB.open(options, path.toString());
      all.add(0, db);
    }

    private <T extends AutoCloseable> T keep(T made) {
      all.add(0, made);
      return made;
    }

    @SafeVarargs
    private static <T> T pick(Random random, T... of) {
      return of[random.nextInt(of.length)];
    }

    @Override
    public void close() throws Exception {
      for (AutoCloseable one : all) one.close();
    }
  }

  /** Counts the compactions that RocksDB has logged, in all sessions. */
  private static long compactions(Path path) throws IOException {
    long count = 0;
    try (Stream<Path> files = Files.list(path)) {
      for (Path file : (Iterable<Path>) files::iterator) {
        if (!file.getFileName().toString().startsWith("LOG")) continue;
        Matcher events = FINISHED.matcher(Files.readString(file, StandardCharsets.ISO_8859_1));
        while (events.find()) ++count;
      }
    }
    return count;
  }

  private static void remove(Path path) throws IOException {
    if (!Files.exists(path)) return;
    try (Stream<Path> files = Files.walk(path)) {
      for (Path file : (Iterable<Path>) files.sorted(Comparator.reverseOrder())::iterator) Files.delete(file);
    }
  }
}
