import java.nio.file.Files;
import java.nio.file.Path;
import org.rockmill.Rockmill;
import org.rocksdb.*;

/** With a native part that this system cannot load, nothing is attached and the program goes on. */
public final class Unsupported {
  public static void main(String[] arguments) throws Exception {
    Path path = Path.of(arguments[0]);
    Files.createDirectories(path);
    RocksDB.loadLibrary();
    for (int service = 0; service < 2; ++service) {
      try (Rockmill rockmill = Rockmill.builder().build();
          Options options = new Options().setCreateIfMissing(true)) {
        if (rockmill.isActive()) throw new AssertionError("it is active");
        rockmill.attach(options);
        try (RocksDB db = RocksDB.open(options, path.toString())) {
          db.put("key".getBytes(), "value".getBytes());
          db.compactRange();
        }
        if (rockmill.stats().jobsOffered() != 0) throw new AssertionError("a job");
      }
    }
    System.out.println("a system that is not supported: done");
  }
}
