import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import javax.management.ObjectName;

/**
 * Writes a JSON object again and again, so that the last one is there when the process is killed: the CPU seconds of this
 * process by kind of thread, Rockmill's counters, and what the program adds.
 */
final class Measure {
  private static final long PERIOD_MS = 200;
  // USER_HZ.
  private static final double TICKS_PER_SECOND = 100;
  /** Fields of /proc/self/task/N/stat behind the name. */
  private static final int USER_TICKS = 11;
  private static final int SYSTEM_TICKS = 12;

  private static final Map<String, Object> ADDED = new TreeMap<>();
  /** By thread, so that threads that have ended count. */
  private static final Map<String, Double> SECONDS = new HashMap<>();
  private static final Map<String, String> KINDS = new HashMap<>();

  private static Path file;

  private Measure() {}

  static void start(Path to) {
    file = to;
    Thread thread =
        new Thread(
            () -> {
              while (true) {
                try {
                  write();
                  Thread.sleep(PERIOD_MS);
                } catch (Exception error) {
                  error.printStackTrace();
                  return;
                }
              }
            });
    thread.setDaemon(true);
    thread.start();
  }

  /** Adds a number or a text to what is written. */
  static synchronized void put(String name, Object value) {
    ADDED.put(name, value);
  }

  /** Writes all at once. */
  static synchronized void write() throws Exception {
    look();
    Map<String, Double> kinds = new TreeMap<>();
    SECONDS.forEach((thread, seconds) -> kinds.merge(KINDS.get(thread), seconds, Double::sum));
    StringBuilder json = new StringBuilder("{");
    ADDED.forEach(
        (name, value) -> json.append(String.format("\"%s\":%s,", name, value instanceof Number ? value : "\"" + value + "\"")));
    kinds.forEach((name, seconds) -> json.append(String.format(Locale.ROOT, "\"cpu_%s\":%.2f,", name, seconds)));
    json.append("\"rockmill\":[");
    String comma = "";
    for (ObjectName bean :
        ManagementFactory.getPlatformMBeanServer().queryNames(new ObjectName("org.rockmill:type=Rockmill,*"), null)) {
      json.append(comma).append(ManagementFactory.getPlatformMBeanServer().getAttribute(bean, "Json"));
      comma = ",";
    }
    Path part = file.resolveSibling(file.getFileName() + ".part");
    Files.writeString(part, json.append("]}"));
    Files.move(part, file, StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
  }

  private static void look() throws IOException {
    try (DirectoryStream<Path> threads = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
      for (Path thread : threads) {
        String stat;
        try {
          stat = Files.readString(thread.resolve("stat"));
        } catch (IOException error) {
          // It has ended.
          continue;
        }
        String name = stat.substring(stat.indexOf('(') + 1, stat.lastIndexOf(')'));
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        double ticks = Double.parseDouble(fields[USER_TICKS]) + Double.parseDouble(fields[SYSTEM_TICKS]);
        String key = thread.getFileName().toString();
        SECONDS.put(key, ticks / TICKS_PER_SECOND);
        KINDS.put(key, kind(name));
      }
    }
  }

  /** RocksDB compacts in its pools of low and bottom priority, and flushes in that of high priority. */
  private static String kind(String name) {
    if (name.startsWith("rocksdb:low") || name.startsWith("rocksdb:bot")) return "rocksdb_compaction";
    if (name.startsWith("rocksdb")) return "rocksdb_flush";
    if (name.startsWith("rockmill")) return "rockmill";
    return "rest";
  }
}
