import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.rocksdb.*;

/**
 * The agent compacts transaction databases whose files have committed data alone, and no others. It stops only if one of
 * these may have its service. Arguments are a folder and the options that have the service: {@code same}, or the kind of
 * the copy. {@code environment} is a copy with an {@code Env} of the program.
 */
public final class Transactions {
  public static void main(String[] arguments) throws Exception {
    Path path = Path.of(arguments[0]);
    RocksDB.loadLibrary();
    try (Options options = new Options().setCreateIfMissing(true);
        Options other = new Options().setCreateIfMissing(true);
        Options last = new Options().setCreateIfMissing(true)) {
      long done = compacts(path.resolve("committed"), options);
      // Other options, and copies of them, do not have the service.
      fill(path.resolve("prepared"), other, TxnDBWritePolicy.WRITE_PREPARED);
      try (Options copy = new Options(other)) {
        fill(path.resolve("copied"), copy, TxnDBWritePolicy.WRITE_UNPREPARED);
      }
      unserved(path.resolve("paths"), path.resolve("elsewhere"));
      if (count("jobs_done") != done) throw new AssertionError("a database is compacted: " + stats());
      // RocksDB fills in the database's own folder as a path of each family.
      compacts(path.resolve("families"), last);

      done = count("jobs_done");
      served(arguments[1], options, path.resolve("served"));
      if (count("jobs_done") != done) throw new AssertionError("WRITE_PREPARED is compacted: " + stats());
      fill(path.resolve("last"), last, TxnDBWritePolicy.WRITE_COMMITTED);
      if (count("jobs_done") != done) throw new AssertionError("it has not stopped: " + stats());
    }
    System.out.println("transactions: done");
  }

  /** Returns the number of jobs that are done afterwards. */
  private static long compacts(Path path, Options options) throws Exception {
    long done = count("jobs_done");
    fill(path, options, TxnDBWritePolicy.WRITE_COMMITTED);
    if (count("jobs_done") == done) throw new AssertionError(path + " is not compacted: " + stats());
    return count("jobs_done");
  }

  /** Databases that are not served get a family in another folder. */
  private static void unserved(Path path, Path elsewhere) throws Exception {
    List<DbPath> paths = List.of(new DbPath(Files.createDirectories(elsewhere), 1 << 30));
    try (Options options = new Options().setCreateIfMissing(true);
        ColumnFamilyOptions there = new ColumnFamilyOptions().setCfPaths(paths);
        TtlDB db = TtlDB.open(options, Files.createDirectories(path.resolve("ttl")).toString(), 1000, false)) {
      db.createColumnFamilyWithTtl(new ColumnFamilyDescriptor("there".getBytes(), there), 1000).close();
    }
    try (Options options = new Options().setCreateIfMissing(true).setCfPaths(paths);
        ColumnFamilyOptions there = new ColumnFamilyOptions().setCfPaths(paths);
        RocksDB db = RocksDB.open(options, Files.createDirectories(path).toString())) {
      db.createColumnFamily(new ColumnFamilyDescriptor("there".getBytes(), there)).close();
    }
  }

  /** A database with uncommitted data in its files has options with the service. */
  private static void served(String kind, Options options, Path path) throws Exception {
    if (kind.equals("environment")) {
      try (Env memory = new RocksMemEnv(Env.getDefault());
          Options copy = new Options(options).setEnv(memory);
          RocksDB db = RocksDB.open(copy, path.toString())) {
        return;
      }
    }
    try (DBOptions database = new DBOptions(options);
        DBOptions again = new DBOptions(database);
        ColumnFamilyOptions family = new ColumnFamilyOptions();
        Options copy = kind.equals("copy") ? new Options(options) : new Options(again, family)) {
      fill(path, kind.equals("same") ? options : copy, TxnDBWritePolicy.WRITE_PREPARED);
    }
  }

  private static void fill(Path path, Options options, TxnDBWritePolicy policy) throws Exception {
    Files.createDirectories(path);
    try (TransactionDBOptions transactions = new TransactionDBOptions().setWritePolicy(policy);
        TransactionDB db = TransactionDB.open(options, transactions, path.toString());
        WriteOptions write = new WriteOptions();
        FlushOptions wait = new FlushOptions().setWaitForFlush(true)) {
      // A family like another one.
      ColumnFamilyOptions like = db.getDefaultColumnFamily().getDescriptor().getOptions();
      try (ColumnFamilyHandle family = db.createColumnFamily(new ColumnFamilyDescriptor("like".getBytes(), like))) {
        if (like.cfPaths().isEmpty()) throw new AssertionError("RocksDB has filled in no path");
      }
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

  /** Returns a count of the agent's service; 0 before there is one. */
  static long count(String name) throws Exception {
    String[] parts = String.valueOf(stats()).split("\"" + name + "\":");
    return parts.length < 2 ? 0 : Long.parseLong(parts[1].split("[,}]")[0]);
  }
}
