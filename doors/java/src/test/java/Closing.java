import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Random;
import org.rockmill.Rockmill;
import org.rocksdb.*;

/** A database that is closed does not wait for a job that Rockmill has begun: RocksDB gets it back. */
public final class Closing {
  private static final int FILES = 4;
  private static final int VALUE_BYTES = 64 << 10;
  private static final int KEYS = 64;

  /** The job would take half a minute. */
  private static final long BYTES_PER_SECOND = 1 << 20;

  public static void main(String[] arguments) throws Exception {
    RocksDB.loadLibrary();
    for (String kind : new String[] {"plain", "transactions"}) {
      Path path = Path.of(arguments[0], kind);
      Files.createDirectories(path);
      try (Rockmill rockmill =
              Rockmill.builder().set("write_committed", "true").set("io_bytes_per_second", "" + BYTES_PER_SECOND).build();
          Options options = options();
          TransactionDBOptions transactions = new TransactionDBOptions()) {
        rockmill.attach(options);
        RocksDB db = open(kind, options, transactions, path.toString());
        // The last file begins a compaction.
        fill(db);
        while (rockmill.stats().jobsRunning() == 0) Thread.sleep(1);
        db.close();
        if (rockmill.stats().jobsDone() != 0) throw new AssertionError(kind + ": the close has waited for the job");
      }
      try (Options options = options();
          RocksDB db = RocksDB.open(options, path.toString())) {
        if (db.get("key7".getBytes()) == null) throw new AssertionError("key7");
      }
    }
    System.out.println("closing: done");
  }

  private static Options options() {
    return new Options()
        .setCreateIfMissing(true)
        .setCompressionType(CompressionType.NO_COMPRESSION)
        .setLevel0FileNumCompactionTrigger(FILES);
  }

  private static RocksDB open(String kind, Options options, TransactionDBOptions transactions, String path)
      throws RocksDBException {
    return kind.equals("transactions")
        ? TransactionDB.open(options, transactions, path)
        : RocksDB.open(options, path);
  }

  private static void fill(RocksDB db) throws RocksDBException {
    byte[] value = new byte[VALUE_BYTES];
    Random random = new Random(7);
    try (FlushOptions wait = new FlushOptions().setWaitForFlush(true)) {
      for (int file = 0; file < FILES; ++file) {
        for (int key = 0; key < KEYS; ++key) {
          random.nextBytes(value);
          db.put(("key" + key).getBytes(), value);
        }
        db.flush(wait);
      }
    }
  }
}
