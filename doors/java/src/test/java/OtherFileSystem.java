import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.rockmill.Rockmill;
import org.rockmill.RockmillException;
import org.rocksdb.*;

/**
 * RocksDB cannot move files to another file system, and would stop writes. So databases with paths are not served.
 * Arguments are two folders, of two file systems, and {@code agent} if the agent attaches.
 */
public final class OtherFileSystem {
  public static void main(String[] arguments) throws Exception {
    Path path = Path.of(arguments[0]);
    Path elsewhere = Path.of(arguments[1]);
    RocksDB.loadLibrary();
    for (String kind : List.of("db", "cf", "family", "created")) {
      Path folder = path.resolve(kind);
      Path other = elsewhere.resolve(kind);
      Files.createDirectories(folder);
      Files.createDirectories(other);
      open(kind, folder, List.of(new DbPath(folder, 1), new DbPath(other, 1L << 40)), arguments.length > 2);
    }
    System.out.println("another file system: done");
  }

  private static void open(String kind, Path folder, List<DbPath> paths, boolean hasAgent) throws Exception {
    List<ColumnFamilyHandle> handles = new ArrayList<>();
    try (Options options = new Options().setCreateIfMissing(true).setDisableAutoCompactions(true);
        ColumnFamilyOptions usual = new ColumnFamilyOptions().setDisableAutoCompactions(true);
        ColumnFamilyOptions there = new ColumnFamilyOptions().setDisableAutoCompactions(true).setCfPaths(paths)) {
      if (kind.equals("db")) options.setDbPaths(paths);
      if (kind.equals("cf")) options.setCfPaths(paths);
      try (DBOptions database = new DBOptions(options)) {
        ColumnFamilyDescriptor family =
            new ColumnFamilyDescriptor(RocksDB.DEFAULT_COLUMN_FAMILY, kind.equals("family") ? there : usual);
        if (!hasAgent && !kind.equals("created")) {
          refuses(() -> {
            try (Rockmill rockmill = Rockmill.builder().build()) {
              if (kind.equals("family")) {
                rockmill.attach(database, List.of(family));
              } else {
                rockmill.attach(options);
              }
            }
          });
        }
        boolean isOfOne = kind.equals("db") || kind.equals("cf");
        try (RocksDB db =
            isOfOne
                ? RocksDB.open(options, folder.toString())
                : RocksDB.open(database, folder.toString(), List.of(family), handles)) {
          ColumnFamilyHandle used = db.getDefaultColumnFamily();
          if (kind.equals("created")) {
            used = db.createColumnFamily(new ColumnFamilyDescriptor("created".getBytes(), there));
            handles.add(used);
          }
          fill(db, used);
          handles.forEach(ColumnFamilyHandle::close);
        }
      }
    }
  }

  /** Compacts into the other path. */
  private static void fill(RocksDB db, ColumnFamilyHandle family) throws RocksDBException {
    try (FlushOptions wait = new FlushOptions().setWaitForFlush(true);
        CompactRangeOptions there = new CompactRangeOptions().setTargetPathId(1)) {
      for (int file = 0; file < 4; ++file) {
        for (int key = 0; key < 100; ++key) db.put(family, ("key" + key).getBytes(), ("value" + file).getBytes());
        db.flush(wait, family);
      }
      db.compactRange(family, null, null, there);
      db.put(family, "key7".getBytes(), "last".getBytes());
    }
  }

  private static void refuses(Runnable attach) {
    try {
      attach.run();
    } catch (RockmillException error) {
      if (error.getMessage().contains("db_paths or cf_paths")) return;
      throw error;
    }
    throw new AssertionError("options with paths are not refused");
  }
}
