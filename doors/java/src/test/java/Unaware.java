import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.TreeMap;
import org.rocksdb.*;

/** A program that knows nothing of Rockmill, except in its last lines: the agent has to have done its compactions. */
public final class Unaware {
  private static final int FILES = 20;
  private static final int KEYS = 2000;

  public static void main(String[] arguments) throws Exception {
    Path path = Path.of(arguments[0]);
    Files.createDirectories(path);
    RocksDB.loadLibrary();
    TreeMap<String, String> model = new TreeMap<>();
    List<ColumnFamilyHandle> handles = new ArrayList<>();
    try (DBOptions options = new DBOptions().setCreateIfMissing(true);
        ColumnFamilyOptions family = new ColumnFamilyOptions();
        RocksDB db =
            RocksDB.open(
                options, path.toString(), Arrays.asList(new ColumnFamilyDescriptor(RocksDB.DEFAULT_COLUMN_FAMILY, family)),
                handles);
        FlushOptions wait = new FlushOptions().setWaitForFlush(true)) {
      Random random = new Random(7);
      for (int file = 0; file < FILES; ++file) {
        for (int at = 0; at < KEYS; ++at) {
          String key = "key" + random.nextInt(3 * KEYS);
          String value = file + "/" + at;
          db.put(key.getBytes(), value.getBytes());
          model.put(key, value);
        }
        db.flush(wait);
        if (file % 5 == 4) db.compactRange();
      }
      db.compactRange();
      for (String key : model.keySet()) {
        if (!new String(db.get(key.getBytes())).equals(model.get(key))) throw new AssertionError(key);
      }
      handles.forEach(ColumnFamilyHandle::close);
    }
    // The agent is in the system's class loader, and this class may be in one that does not see it.
    ClassLoader system = ClassLoader.getSystemClassLoader();
    String stats = (String) Class.forName("org.rockmill.AgentHook", true, system).getMethod("stats").invoke(null);
    if (stats == null || stats.contains("\"jobs_done\":0,")) throw new AssertionError("the agent did nothing: " + stats);
    System.out.println(stats.substring(0, Math.min(120, stats.length())));
  }
}
