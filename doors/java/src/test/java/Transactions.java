import java.nio.file.Files;
import java.nio.file.Path;
import org.rocksdb.*;

/** The agent compacts transaction databases whose files have committed data alone, and no others. */
public final class Transactions {
  public static void main(String[] arguments) throws Exception {
    Path path = Path.of(arguments[0]);
    RocksDB.loadLibrary();
    try (Options options = new Options().setCreateIfMissing(true);
        Options last = new Options().setCreateIfMissing(true)) {
      fill(path.resolve("committed"), options, TxnDBWritePolicy.WRITE_COMMITTED);
      long done = count("jobs_done");
      if (done == 0) throw new AssertionError("WRITE_COMMITTED is not compacted: " + stats());
      // Copies of options have the service of these.
      try (Options copy = new Options(options)) {
        fill(path.resolve("copied"), copy, TxnDBWritePolicy.WRITE_PREPARED);
      }
      if (count("jobs_done") != done) throw new AssertionError("a copy with WRITE_PREPARED is compacted: " + stats());
      // Options that have the service already.
      fill(path.resolve("again"), options, TxnDBWritePolicy.WRITE_PREPARED);
      if (count("jobs_done") != done) throw new AssertionError("WRITE_PREPARED is compacted: " + stats());
      fill(path.resolve("last"), last, TxnDBWritePolicy.WRITE_COMMITTED);
      if (count("jobs_done") != done) throw new AssertionError("it has not stopped: " + stats());
    }
    System.out.println("transactions: done");
  }

  private static void fill(Path path, Options options, TxnDBWritePolicy policy) throws Exception {
    Files.createDirectories(path);
    try (TransactionDBOptions transactions = new TransactionDBOptions().setWritePolicy(policy);
        TransactionDB db = TransactionDB.open(options, transactions, path.toString());
        WriteOptions write = new WriteOptions();
        FlushOptions wait = new FlushOptions().setWaitForFlush(true)) {
      for (int file = 0; file < 4; ++file) {
        try (Transaction transaction = db.beginTransaction(write)) {
          for (int key = 0; key < 100; ++key) transaction.put(("key" + key).getBytes(), ("value" + file).getBytes());
          transaction.commit();
        }
        db.flush(wait);
      }
      db.compactRange();
      if (!new String(db.get("key7".getBytes())).equals("value3")) throw new AssertionError("key7");
    }
  }

  private static String stats() throws Exception {
    ClassLoader system = ClassLoader.getSystemClassLoader();
    return (String) Class.forName("org.rockmill.AgentHook", true, system).getMethod("stats").invoke(null);
  }

  private static long count(String name) throws Exception {
    String[] parts = String.valueOf(stats()).split("\"" + name + "\":");
    return parts.length < 2 ? 0 : Long.parseLong(parts[1].split("[,}]")[0]);
  }
}
