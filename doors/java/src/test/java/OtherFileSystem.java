import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.rockmill.Rockmill;
import org.rocksdb.*;

/** RocksDB cannot rename files into another file system. The database is declined once that has happened. */
public final class OtherFileSystem {
  public static void main(String[] arguments) throws Exception {
    Path path = Path.of(arguments[0]);
    Path elsewhere = Path.of(arguments[1]);
    Files.createDirectories(path);
    Files.createDirectories(elsewhere);
    RocksDB.loadLibrary();
    try (Rockmill rockmill = Rockmill.builder().minJobBytes(0).build()) {
      for (int opened = 0; opened < 3; ++opened) {
        String error = null;
        // Programs may leave options open.
        Options options = new Options().setCreateIfMissing(true).setDisableAutoCompactions(true);
        options.setDbPaths(List.of(new DbPath(path, 1), new DbPath(elsewhere, 1L << 40)));
        rockmill.attach(options);
        try (RocksDB db = RocksDB.open(options, path.toString());
            FlushOptions wait = new FlushOptions().setWaitForFlush(true);
            CompactRangeOptions there = new CompactRangeOptions().setTargetPathId(1)) {
          for (int file = 0; file < 4; ++file) {
            for (int key = 0; key < 100; ++key) db.put(("key" + key).getBytes(), (file + "/" + opened).getBytes());
            db.flush(wait);
          }
          db.compactRange(db.getDefaultColumnFamily(), null, null, there);
        } catch (RocksDBException stopped) {
          error = stopped.getMessage();
        }
        if (opened == 0 ? error == null || !error.contains("cross-device") : error != null) {
          throw new AssertionError("opening " + opened + ": " + error + "; " + rockmill.lastError());
        }
      }
      if (!rockmill.lastError().contains("db-paths")) throw new AssertionError(rockmill.lastError());
    }
    System.out.println("another file system: done");
  }
}
