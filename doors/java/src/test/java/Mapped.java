import java.nio.file.Files;
import java.nio.file.Path;
import org.rockmill.Rockmill;
import org.rocksdb.*;

/** RocksJava's library and the database are in a folder, and the name of that folder is one of a message's characters. */
public final class Mapped {
  public static void main(String[] arguments) throws Exception {
    Path path = Path.of(arguments[0]);
    // RocksJava's loader writes its library there.
    Files.createDirectories(path);
    NativeLibraryLoader.getInstance().loadLibrary(path.toString());
    try (Rockmill rockmill = Rockmill.builder().minJobBytes(0).build();
        Options options = new Options().setCreateIfMissing(true)) {
      rockmill.attach(options);
      try {
        rockmill.changeSettings(java.util.Map.of("nice", "\ud834\udd1e"));
        throw new AssertionError("a setting that is no number");
      } catch (org.rockmill.RockmillException error) {
        if (!error.getMessage().contains("\ud834\udd1e")) throw error;
      }
    }
    System.out.println("a path beyond U+FFFF: done");
  }
}
