import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import javax.management.openmbean.TabularData;
import org.rockmill.Rockmill;
import org.rockmill.RockmillStats;
import org.rockmill.micrometer.RockmillMetrics;
import org.rocksdb.*;

/** JMX and Micrometer show what the statistics say. */
public final class Meters {
  private static final ObjectName NAMES;

  public static void main(String[] arguments) throws Exception {
    Path path = Path.of(arguments[0]);
    Files.createDirectories(path);
    RocksDB.loadLibrary();
    MBeanServer server = ManagementFactory.getPlatformMBeanServer();
    SimpleMeterRegistry registry = new SimpleMeterRegistry();
    try (Rockmill rockmill = Rockmill.builder().minJobBytes(0).build();
        Options options = new Options().setCreateIfMissing(true)) {
      new RockmillMetrics(rockmill).bindTo(registry);
      rockmill.attach(options);
      try (RocksDB db = RocksDB.open(options, path.toString());
          FlushOptions wait = new FlushOptions().setWaitForFlush(true)) {
        for (int file = 0; file < 4; ++file) {
          for (int key = 0; key < 1000; ++key) db.put(("key" + key).getBytes(), ("value" + file).getBytes());
          db.flush(wait);
        }
        db.compactRange();
      }
      RockmillStats stats = rockmill.stats();
      ObjectName bean = server.queryNames(NAMES, null).iterator().next();
      same(stats.jobsDone(), server.getAttribute(bean, "JobsDone"));
      same(stats.readBytes(), server.getAttribute(bean, "ReadBytes"));
      same(stats.jobCpuSeconds(), server.getAttribute(bean, "JobCpuSeconds"));
      same(stats.jobsDeclinedByReason().size(), ((TabularData) server.getAttribute(bean, "JobsDeclinedByReason")).size());
      same(stats.toJson(), server.getAttribute(bean, "Json"));
      same((double) stats.jobsDone(), registry.get("rockmill.jobs.done").functionCounter().count());
      same((double) stats.writtenBytes(), registry.get("rockmill.written").functionCounter().count());
      same(0.0, registry.get("rockmill.jobs.running").gauge().value());
      same(1L, stats.jobsDone());
      same(4_000L, stats.entriesRead());
      same(1_000L, stats.entriesWritten());
      if (stats.peakHeldBytes() == 0 || stats.jobSeconds() == 0) throw new AssertionError(stats.toJson());
    }
    if (!server.queryNames(NAMES, null).isEmpty()) throw new AssertionError("the bean outlives its service");
    // A shared service of the application's class loader has one as long as the process lives.
    Rockmill.shared(Map.of("threads", "1"));
    if (server.queryNames(NAMES, null).size() != 1) throw new AssertionError("a shared service has no bean");
    System.out.println("meters: done");
  }

  private static void same(Object expected, Object found) {
    if (!expected.equals(found)) throw new AssertionError(found + " in place of " + expected);
  }

  static {
    try {
      NAMES = new ObjectName("org.rockmill:type=Rockmill,*");
    } catch (Exception error) {
      throw new AssertionError(error);
    }
  }
}
