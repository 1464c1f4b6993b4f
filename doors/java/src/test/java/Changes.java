import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import org.rockmill.Rockmill;
import org.rocksdb.*;

/** Options change while compactions are offered and run. The database keeps its content and accepts writes. */
public final class Changes {
  private static final int FLUSHES = 120;
  private static final int KEYS = 400;

  public static void main(String[] arguments) throws Exception {
    Path path = Path.of(arguments[0]);
    long seed = arguments.length > 1 ? Long.parseLong(arguments[1]) : System.nanoTime();
    System.out.println("changes: seed " + seed);
    Files.createDirectories(path);
    RocksDB.loadLibrary();
    Random random = new Random(seed);
    TreeMap<String, String> model = new TreeMap<>();
    try (Rockmill rockmill = Rockmill.builder().minJobBytes(0).build();
        Options options = options()) {
      rockmill.attach(options);
      try (RocksDB db = RocksDB.open(options, path.toString());
          FlushOptions wait = new FlushOptions().setWaitForFlush(true)) {
        AtomicBoolean ends = new AtomicBoolean();
        AtomicReference<Throwable> failed = new AtomicReference<>();
        Thread changes = new Thread(() -> change(db, ends, failed));
        changes.start();
        for (int flush = 0; flush < FLUSHES; ++flush) {
          for (int at = 0; at < KEYS / 4; ++at) {
            String key = "key" + random.nextInt(KEYS);
            String value = flush + "/" + at;
            db.put(key.getBytes(), value.getBytes());
            model.put(key, value);
          }
          db.flush(wait);
        }
        ends.set(true);
        changes.join();
        if (failed.get() != null) throw new AssertionError(failed.get());
        db.compactRange();
        check(db, model);
        if (rockmill.stats().jobsDone() == 0) throw new AssertionError("nothing was done: " + rockmill.stats());
        if (rockmill.stats().jobsFailed() != 0) throw new AssertionError("failed: " + rockmill.stats());
        System.out.println(
            "changes: " + rockmill.stats().jobsDone() + " done, " + rockmill.stats().jobsDeclinedByReason() + " declined");
      }
    }
    try (Options options = options();
        RocksDB db = RocksDB.open(options, path.toString())) {
      check(db, model);
    }
  }

  private static Options options() {
    return new Options().setCreateIfMissing(true).setLevel0FileNumCompactionTrigger(2);
  }

  private static void change(RocksDB db, AtomicBoolean ends, AtomicReference<Throwable> failed) {
    try {
      for (int turn = 0; !ends.get(); ++turn) {
        db.setOptions(
            MutableColumnFamilyOptions.builder()
                .setTargetFileSizeBase(4096L << turn % 8)
                .setMaxBytesForLevelBase(65536L << turn % 3)
                .build());
        Thread.sleep(3);
      }
    } catch (RocksDBException | InterruptedException error) {
      failed.set(error);
    }
  }

  private static void check(RocksDB db, TreeMap<String, String> model) {
    TreeMap<String, String> found = new TreeMap<>();
    try (RocksIterator all = db.newIterator()) {
      for (all.seekToFirst(); all.isValid(); all.next()) found.put(new String(all.key()), new String(all.value()));
    }
    if (!found.equals(model)) throw new AssertionError("the content differs");
  }
}
