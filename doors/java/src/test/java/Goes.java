import java.io.File;
import java.lang.ref.WeakReference;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.rocksdb.*;

/**
 * A class loader with Rockmill is collected, like that of a job of Flink. Its service ends with it, and an open
 * database keeps its own until it is closed. Arguments are a folder and the jar.
 */
public final class Goes {
  private static final int ROUNDS = 3;
  private static final int TRIES = 100;

  public static void main(String[] arguments) throws Exception {
    Path path = Path.of(arguments[0]);
    Files.createDirectories(path);
    RocksDB.loadLibrary();
    long before = Threads.count();
    for (int round = 0; round < ROUNDS; ++round) {
      try (Options options = new Options().setCreateIfMissing(true)) {
        WeakReference<ClassLoader> loader = attach(options, arguments[1]);
        try (RocksDB db = RocksDB.open(options, path.resolve("db" + round).toString())) {
          compact(db);
          for (int at = 0; loader.get() != null; ++at) {
            if (at == TRIES) throw new AssertionError("the class loader stays");
            System.gc();
            Thread.sleep(20);
          }
          compact(db);
          if (Threads.count() == before) throw new AssertionError("the database has lost its service");
          if (!new String(db.get("key7".getBytes())).equals("value3")) throw new AssertionError("key7");
        }
      }
    }
    // The JVM unloads a class loader's libraries some time after it.
    for (int at = 0; Threads.count() > before; ++at) {
      if (at == TRIES) throw new AssertionError("the service outlives its class loader: " + Threads.count() + " threads");
      System.gc();
      Thread.sleep(50);
    }
    System.out.println("a class loader that goes: done");
  }

  private static WeakReference<ClassLoader> attach(Options options, String jar) throws Exception {
    ClassLoader loader = new URLClassLoader(new URL[] {new File(jar).toURI().toURL()}, Goes.class.getClassLoader());
    Class<?> type = Class.forName("org.rockmill.Rockmill", true, loader);
    if (type.getClassLoader() != loader) throw new AssertionError("the class path has Rockmill");
    Object rockmill = type.getMethod("shared", Map.class).invoke(null, Map.of("min_job_bytes", "0"));
    type.getMethod("attach", Options.class).invoke(rockmill, options);
    return new WeakReference<>(loader);
  }

  private static void compact(RocksDB db) throws RocksDBException {
    try (FlushOptions wait = new FlushOptions().setWaitForFlush(true)) {
      for (int file = 0; file < 4; ++file) {
        for (int key = 0; key < 100; ++key) db.put(("key" + key).getBytes(), ("value" + file).getBytes());
        db.flush(wait);
      }
      db.compactRange();
    }
  }
}
