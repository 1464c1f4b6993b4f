import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.rockmill.Rockmill;
import org.rocksdb.*;

/**
 * Many databases of one process share a service: it has no more threads than with one. Prints the times of {@code attach}
 * and the memory of the process. Arguments are a folder, the number of databases, and {@code without} to measure without
 * Rockmill.
 */
public final class Many {
  public static void main(String[] arguments) throws Exception {
    Path path = Path.of(arguments[0]);
    int count = Integer.parseInt(arguments[1]);
    boolean attaches = arguments.length < 3;
    RocksDB.loadLibrary();
    long[] nanos = new long[count];
    List<AutoCloseable> open = new ArrayList<>();
    long ofOne = 0;
    try (Rockmill rockmill = Rockmill.builder().minJobBytes(0).threads(2).build();
        FlushOptions wait = new FlushOptions().setWaitForFlush(true)) {
      for (int at = 0; at < count; ++at) {
        Path folder = Files.createDirectories(path.resolve("db" + at));
        Options options = new Options().setCreateIfMissing(true).setWriteBufferSize(1 << 20);
        long begun = System.nanoTime();
        if (attaches) rockmill.attach(options);
        nanos[at] = System.nanoTime() - begun;
        RocksDB db = RocksDB.open(options, folder.toString());
        open.add(options);
        open.add(db);
        for (int file = 0; file < 2; ++file) {
          for (int key = 0; key < 100; ++key) db.put(("key" + key).getBytes(), ("value" + file).getBytes());
          db.flush(wait);
        }
        db.compactRange();
        if (at == 0) ofOne = threads();
      }
      long done = rockmill.stats().jobsDone();
      if (attaches && done < count) throw new AssertionError(done + " jobs of " + count + " databases");
      if (threads() > ofOne) throw new AssertionError(threads() + " threads, and " + ofOne + " with one database");
      // The first one also loads the part for the version.
      Arrays.sort(nanos, 1, count);
      System.out.printf(
          "{\"databases\":%d,\"jobs\":%d,\"attach_us\":{\"first\":%d,\"median\":%d,\"most\":%d},\"threads\":%d,\"rss_kib\":%s}%n",
          count, done, nanos[0] / 1000, nanos[count / 2] / 1000, nanos[count - 1] / 1000, threads(), rss());
      for (int at = open.size() - 1; at >= 0; --at) open.get(at).close();
    }
  }

  /** Returns the number of threads of Rockmill. */
  private static long threads() throws IOException {
    long count = 0;
    try (DirectoryStream<Path> threads = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
      for (Path thread : threads) {
        try {
          if (Files.readString(thread.resolve("comm")).startsWith("rockmill")) ++count;
        } catch (IOException error) {
          // It has ended meanwhile.
        }
      }
    }
    return count;
  }

  private static String rss() throws IOException {
    for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
      if (line.startsWith("VmRSS:")) return line.replaceAll("\\D", "");
    }
    return "0";
  }
}
