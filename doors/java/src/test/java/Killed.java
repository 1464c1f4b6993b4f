import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.rockmill.Rockmill;
import org.rocksdb.*;

/**
 * A JVM is killed, terminated or interrupted while compactions run. Afterwards the database has each batch that was written,
 * whole, without Rockmill and with it. Arguments are a folder, the number of processes, and the seed; or {@code child}.
 */
public final class Killed {
  private static final int KEYS = 500;
  private static final int LONGEST_S = 60;
  private static final byte[] LAST = "last".getBytes();

  public static void main(String[] arguments) throws Exception {
    Path path = Path.of(arguments[0]);
    Files.createDirectories(path);
    RocksDB.loadLibrary();
    if (arguments[1].equals("child")) {
      write(path);
      return;
    }
    long seed = arguments.length > 2 ? Long.parseLong(arguments[2]) : System.nanoTime();
    System.out.println("kills: seed " + seed);
    Random random = new Random(seed);
    int processes = Integer.parseInt(arguments[1]);
    long jobs = 0;
    for (int process = 0; process < processes; ++process) {
      String signal = List.of("KILL", "TERM", "INT").get(process % 3);
      Path log = path.resolveSibling(path.getFileName() + ".log");
      Process child =
          new ProcessBuilder(
                  System.getProperty("java.home") + "/bin/java", "-Xmx256m", "-XX:ErrorFile=" + log + ".crash",
                  "-Djava.io.tmpdir=" + System.getProperty("java.io.tmpdir"), "-cp", System.getProperty("java.class.path"),
                  "Killed", path.toString(), "child")
              .redirectErrorStream(true)
              .redirectOutput(log.toFile())
              .start();
      while (!Files.exists(log) || !Files.readString(log).contains("begun")) {
        if (!child.isAlive()) throw new AssertionError(Files.readString(log));
        Thread.sleep(5);
      }
      Thread.sleep(random.nextInt(400));
      new ProcessBuilder("kill", "-" + signal, Long.toString(child.pid())).start().waitFor();
      if (!child.waitFor(LONGEST_S, TimeUnit.SECONDS)) throw new AssertionError("the process does not end by " + signal);
      if (Files.exists(Path.of(log + ".crash"))) throw new AssertionError(Files.readString(Path.of(log + ".crash")));
      check(path);
    }
    try (Rockmill rockmill = Rockmill.builder().minJobBytes(0).build();
        Options options = options()) {
      rockmill.attach(options);
      try (RocksDB db = RocksDB.open(options, path.toString());
          FlushOptions wait = new FlushOptions().setWaitForFlush(true)) {
        // The process may have been killed before its first batch.
        if (db.get(LAST) == null) db.put(LAST, "0".getBytes());
        for (int file = 0; file < 2; ++file) {
          for (int key = 0; key < KEYS; ++key) db.put(("key" + key).getBytes(), db.get(LAST));
          db.flush(wait);
        }
        db.compactRange();
        jobs = rockmill.stats().jobsDone();
      }
    }
    if (jobs == 0) throw new AssertionError("nothing was done");
    check(path);
    if (Files.exists(path.resolve("rockmill.staging"))) throw new AssertionError("the staging folder stays");
    try (Stream<Path> left = Files.list(Path.of(System.getProperty("java.io.tmpdir")))) {
      // Only a JVM that was killed leaves its libraries behind.
      for (Path file : (Iterable<Path>) left.filter(file -> file.getFileName().toString().startsWith("rockmill"))::iterator) {
        try (Stream<Path> files = Files.walk(file)) {
          files.sorted(java.util.Comparator.reverseOrder()).forEach(one -> one.toFile().delete());
        }
      }
    }
    System.out.println("kills: done");
  }

  private static Options options() {
    return new Options()
        .setCreateIfMissing(true)
        .setWriteBufferSize(32 << 10)
        .setTargetFileSizeBase(32 << 10)
        .setMaxBytesForLevelBase(64 << 10)
        .setLevel0FileNumCompactionTrigger(2);
  }

  /** Writes batches forever: all keys get the same value, and so does {@link #LAST}. */
  private static void write(Path path) throws Exception {
    Rockmill rockmill = Rockmill.builder().minJobBytes(0).threads(2).build();
    Options options = options();
    rockmill.attach(options);
    RocksDB db = RocksDB.open(options, path.toString());
    byte[] found = db.get(LAST);
    long number = found == null ? 0 : Long.parseLong(new String(found).trim());
    System.out.println("begun");
    try (WriteOptions write = new WriteOptions()) {
      while (true) {
        byte[] value = String.format("%020d", ++number).getBytes();
        try (WriteBatch batch = new WriteBatch()) {
          for (int key = 0; key < KEYS; ++key) batch.put(("key" + key).getBytes(), value);
          batch.put(LAST, value);
          db.write(write, batch);
        }
      }
    }
  }

  private static void check(Path path) throws Exception {
    try (Options options = options();
        RocksDB db = RocksDB.open(options, path.toString())) {
      byte[] last = db.get(LAST);
      for (int key = 0; key < KEYS; ++key) {
        if (!java.util.Arrays.equals(db.get(("key" + key).getBytes()), last)) throw new AssertionError("a torn batch");
      }
    }
  }
}
