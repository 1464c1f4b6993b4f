import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.rockmill.Rockmill;
import org.rocksdb.*;

/**
 * A database that is closed does not wait for a job of Rockmill: RocksDB gets it back. That holds for jobs that run when
 * the close begins, and for jobs that the flush of the close causes. A {@code TtlDB} has no jobs.
 */
public final class Closing {
  private static final int FILES = 4;
  private static final int VALUE_BYTES = 64 << 10;
  private static final int KEYS = 64;

  /** A job of all files would take half a minute. */
  private static final long BYTES_PER_SECOND = 1 << 20;

  /** With it, the flush of a slow family takes half a second. */
  private static final long FLUSHED_BYTES_PER_SECOND = 8 << 20;

  private static final int CLOSES = 5;

  private static final int TRIES = 3000;

  public static void main(String[] arguments) throws Exception {
    RocksDB.loadLibrary();
    // Class loaders matter only for which classes are watched.
    boolean isShort = Boolean.getBoolean("short");
    for (String kind : isShort ? List.of("plain") : List.of("plain", "transactions", "optimistic")) {
      Path path = Path.of(arguments[0], kind);
      running(kind, path.resolve("running"));
      if (isShort) continue;
      for (boolean hasEarlierJob : new boolean[] {false, true}) {
        // A busy machine may be late with the job.
        int at = 0;
        while (!flushing(kind, path.resolve("flushing" + hasEarlierJob + at), hasEarlierJob)) {
          if (++at == CLOSES) throw new AssertionError(kind + ": no flush of a close has begun a job");
        }
      }
    }
    if (!isShort) shared(Path.of(arguments[0], "one"), Path.of(arguments[0], "other"));
    System.out.println("closing: done");
  }

  /** A job runs when the close begins. */
  private static void running(String kind, Path path) throws Exception {
    try (Rockmill rockmill = rockmill();
        Options options = options()) {
      rockmill.attach(options);
      RocksDB db = open(kind, options, path);
      // The last file begins a compaction.
      fill(db, db.getDefaultColumnFamily(), FILES, KEYS);
      while (rockmill.stats().jobsRunning() == 0) Thread.sleep(1);
      db.close();
      if (rockmill.stats().jobsDone() != 0) throw new AssertionError(kind + ": the close has waited for the job");
    }
    try (Options options = options();
        RocksDB db = open(kind, options, path)) {
      if (db.get("key7".getBytes()) == null) throw new AssertionError(kind + ": key7");
    }
  }

  /**
   * The close flushes three families without a WAL, one after the other. The second flush begins a compaction: half a
   * second after the close has begun, and half a second before RocksDB takes no more jobs. Returns whether it was offered.
   */
  private static boolean flushing(String kind, Path path, boolean hasEarlierJob) throws Exception {
    boolean isOffered;
    String what = kind + (hasEarlierJob ? ", with an earlier job" : ", without an earlier job");
    try (Rockmill rockmill = rockmill();
        RateLimiter limiter = new RateLimiter(FLUSHED_BYTES_PER_SECOND);
        Options options = options().setRateLimiter(limiter);
        ColumnFamilyOptions usual = new ColumnFamilyOptions(options);
        WriteOptions unlogged = new WriteOptions().setDisableWAL(true)) {
      rockmill.attach(options);
      RocksDB db = open(kind, options, path);
      ColumnFamilyHandle compacted = db.createColumnFamily(new ColumnFamilyDescriptor("compacted".getBytes(), usual));
      ColumnFamilyHandle last = db.createColumnFamily(new ColumnFamilyDescriptor("last".getBytes(), usual));
      if (hasEarlierJob) {
        fill(db, compacted, FILES, KEYS / 8);
        while (rockmill.stats().jobsDone() == 0) Thread.sleep(20);
      }
      long done = rockmill.stats().jobsDone();
      fill(db, compacted, FILES - 1, KEYS / 4);
      long offered = rockmill.stats().jobsOffered();
      put(db, db.getDefaultColumnFamily(), unlogged, KEYS);
      put(db, compacted, unlogged, KEYS / 4);
      put(db, last, unlogged, KEYS);
      compacted.close();
      last.close();
      db.close();
      isOffered = rockmill.stats().jobsOffered() > offered;
      if (rockmill.stats().jobsDone() != done) throw new AssertionError(what + ": the close has waited for the job");
    }
    List<ColumnFamilyHandle> handles = new ArrayList<>();
    try (Options options = options();
        ColumnFamilyOptions usual = new ColumnFamilyOptions(options);
        DBOptions database = new DBOptions(options)) {
      List<ColumnFamilyDescriptor> families = new ArrayList<>();
      for (String name : new String[] {"default", "compacted", "last"}) {
        families.add(new ColumnFamilyDescriptor(name.getBytes(), usual));
      }
      try (RocksDB db = RocksDB.open(database, path.toString(), families, handles)) {
        for (ColumnFamilyHandle family : handles) {
          if (db.get(family, "key7".getBytes()) == null) throw new AssertionError(what + ": key7");
        }
        handles.forEach(ColumnFamilyHandle::close);
      }
    }
    return isOffered;
  }

  /** Two databases have the same options. The one that stays open keeps its jobs. */
  private static void shared(Path one, Path other) throws Exception {
    // RocksDB from 9.11 on reports that a database closes, and does not name it.
    RocksDB.Version version = RocksDB.rocksdbVersion();
    boolean isNamed = version.getMajor() < 9 || version.getMajor() == 9 && version.getMinor() < 11;
    try (Rockmill rockmill = rockmill();
        Options options = options().setMaxBackgroundJobs(8)) {
      rockmill.attach(options);
      RocksDB closed = open("plain", options, one);
      try (RocksDB open = open("plain", options, other)) {
        fill(closed, closed.getDefaultColumnFamily(), FILES, KEYS);
        fill(open, open.getDefaultColumnFamily(), FILES, KEYS);
        while (rockmill.stats().jobsRunning() < 2) Thread.sleep(1);
        closed.close();
        if (rockmill.stats().jobsDone() != 0) throw new AssertionError("the close has waited for a job");
        rockmill.changeSettings(Map.of("io_bytes_per_second", "0"));
        for (int at = 0; rockmill.stats().jobsDone() == 0; ++at) {
          if (at == TRIES) throw new AssertionError("the database that stays open has lost its jobs");
          if (!isNamed) fill(open, open.getDefaultColumnFamily(), FILES, 1);
          Thread.sleep(20);
        }
        if (open.get("key7".getBytes()) == null) throw new AssertionError("key7");
      }
    }
  }

  private static Rockmill rockmill() {
    return Rockmill.builder()
        .minJobBytes(0)
        .threads(2)
        .set("write_committed", "true")
        .set("io_bytes_per_second", "" + BYTES_PER_SECOND)
        .build();
  }

  static Options options() {
    return new Options()
        .setCreateIfMissing(true)
        .setCompressionType(CompressionType.NO_COMPRESSION)
        .setLevel0FileNumCompactionTrigger(FILES);
  }

  private static RocksDB open(String kind, Options options, Path path) throws Exception {
    Files.createDirectories(path);
    switch (kind) {
      case "transactions":
        try (TransactionDBOptions transactions = new TransactionDBOptions()) {
          return TransactionDB.open(options, transactions, path.toString());
        }
      case "optimistic":
        return OptimisticTransactionDB.open(options, path.toString());
      default:
        return RocksDB.open(options, path.toString());
    }
  }

  /** Writes files. */
  static void fill(RocksDB db, ColumnFamilyHandle family, int files, int keys) throws RocksDBException {
    try (FlushOptions wait = new FlushOptions().setWaitForFlush(true);
        WriteOptions usual = new WriteOptions()) {
      for (int file = 0; file < files; ++file) {
        put(db, family, usual, keys);
        db.flush(wait, family);
      }
    }
  }

  static void fill(RocksDB db) throws RocksDBException {
    fill(db, db.getDefaultColumnFamily(), FILES, KEYS);
  }

  private static void put(RocksDB db, ColumnFamilyHandle family, WriteOptions options, int keys) throws RocksDBException {
    byte[] value = new byte[VALUE_BYTES];
    Random random = new Random(7);
    for (int key = 0; key < keys; ++key) {
      random.nextBytes(value);
      db.put(family, options, ("key" + key).getBytes(), value);
    }
  }
}
