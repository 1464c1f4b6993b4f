import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;

/** The threads of Rockmill in this process. */
final class Threads {
  private Threads() {}

  static long count() throws IOException {
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
}
