import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.rockmill.Rockmill;
import org.rockmill.RockmillException;
import org.rocksdb.*;

/** A database that cannot be attached is refused with one sentence, and the program continues. */
public final class Refusals {
  public static void main(String[] arguments) throws Exception {
    Path path = Path.of(arguments[0]);
    Files.createDirectories(path);
    RocksDB.loadLibrary();
    refuses("threads", () -> Rockmill.builder().set("threads", "many").build());
    refuses("no '='", () -> Rockmill.builder().set("threads"));
    Rockmill rockmill = Rockmill.builder().minJobBytes(0).build();
    Options closed = new Options();
    closed.close();
    refuses("the options are closed", () -> rockmill.attach(closed));
    try (RocksMemEnv memory = new RocksMemEnv(Env.getDefault());
        DBOptions options = new DBOptions().setEnv(memory)) {
      refuses("an Env of the program", () -> rockmill.attach(options));
    }
    refuses("'='", () -> rockmill.changeSettings(Map.of("nice=0", "1")));
    refuses("nice", () -> rockmill.changeSettings(Map.of("nice", "100")));
    rockmill.changeSettings(Map.of("nice", "0"));
    try (Options options = new Options().setCreateIfMissing(true)) {
      rockmill.attach(options);
      refuses("a compaction service already", () -> rockmill.attach(options));
      try (RocksDB db = RocksDB.open(options, path.toString());
          FlushOptions wait = new FlushOptions().setWaitForFlush(true)) {
        for (int file = 0; file < 4; ++file) {
          for (int key = 0; key < 100; ++key) db.put(("key" + key * (file + 1)).getBytes(), ("value" + file).getBytes());
          db.flush(wait);
        }
        db.compactRange();
        if (rockmill.stats().jobsDone() == 0) throw new AssertionError(rockmill.lastError());
        // The database has its own clone.
        rockmill.close();
        for (int key = 0; key < 100; ++key) db.put(("key" + key).getBytes(), "last".getBytes());
        db.flush(wait);
        db.compactRange();
        if (!new String(db.get("key7".getBytes())).equals("last")) throw new AssertionError("key7");
      }
    }
    refuses("closed", () -> rockmill.attach(new Options()));
    rockmill.close();
    // The agent attaches it with open.
    if (arguments.length == 1) afterOpen(path.resolve("after"));
    sharedOptions(path.resolve("one"), path.resolve("two"));
    System.out.println("refusals: done");
  }

  /** Options that are attached after open have no effect. */
  private static void afterOpen(Path path) throws Exception {
    try (Rockmill rockmill = Rockmill.builder().minJobBytes(0).build();
        Options options = new Options().setCreateIfMissing(true);
        RocksDB db = RocksDB.open(options, path.toString())) {
      rockmill.attach(options);
      compact(db, "after");
      if (rockmill.stats().jobsOffered() != 0) throw new AssertionError("a job of a database that was open");
    }
  }

  private static void sharedOptions(Path one, Path two) throws Exception {
    try (Rockmill rockmill = Rockmill.builder().minJobBytes(0).build();
        Options options = new Options().setCreateIfMissing(true)) {
      rockmill.attach(options);
      try (RocksDB second = RocksDB.open(options, two.toString())) {
        try (RocksDB first = RocksDB.open(options, one.toString())) {
          compact(first, "first");
          compact(second, "second");
          if (rockmill.stats().jobsDone() < 2) throw new AssertionError(rockmill.lastError());
        }
        // Its jobs go back to RocksDB from now on.
        compact(second, "again");
        if (!new String(second.get("key7".getBytes())).equals("again2")) throw new AssertionError("key7");
      }
    }
  }

  private static void compact(RocksDB db, String value) throws RocksDBException {
    try (FlushOptions wait = new FlushOptions().setWaitForFlush(true)) {
      for (int file = 0; file < 3; ++file) {
        for (int key = 0; key < 100; ++key) db.put(("key" + key).getBytes(), (value + file).getBytes());
        db.flush(wait);
      }
      db.compactRange();
    }
  }

  private static void refuses(String what, Runnable call) {
    try {
      call.run();
    } catch (RockmillException error) {
      if (error.getMessage().contains(what)) return;
      throw new AssertionError(error.getMessage() + " does not contain: " + what);
    }
    throw new AssertionError("this is not refused: " + what);
  }
}
