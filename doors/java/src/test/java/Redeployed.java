import java.io.File;
import java.lang.ref.WeakReference;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.rocksdb.*;

/**
 * Applications with a RocksJava of their own come and go in a process with the agent, and RocksJava has the same path in
 * each. A close waits for a job in none of them. Arguments are a folder and the class path of an application.
 */
public final class Redeployed {
  private static final int ROUNDS = 2;
  private static final int TRIES = 100;

  public static void main(String[] arguments) throws Exception {
    for (int round = 0; round < ROUNDS; ++round) {
      WeakReference<ClassLoader> loader = run(arguments[1], Path.of(arguments[0], "round" + round));
      for (int at = 0; loader.get() != null; ++at) {
        if (at == TRIES) throw new AssertionError("the class loader stays");
        System.gc();
        Thread.sleep(20);
      }
    }
    System.out.println("redeployed: done");
  }

  private static WeakReference<ClassLoader> run(String path, Path folder) throws Exception {
    List<URL> files = new ArrayList<>();
    for (String file : path.split(":")) files.add(new File(file).toURI().toURL());
    URLClassLoader loader = new URLClassLoader(files.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
    Class.forName("Redeployed$Application", true, loader).getMethod("run", Path.class).invoke(null, folder);
    loader.close();
    return new WeakReference<>(loader);
  }

  /** What a class loader runs. */
  public static final class Application {
    private Application() {}

    public static void run(Path folder) throws Exception {
      Files.createDirectories(folder);
      RocksDB.loadLibrary();
      try (Options options = Closing.options()) {
        RocksDB db = RocksDB.open(options, folder.toString());
        long done = Transactions.count("jobs_done");
        Closing.fill(db);
        while (Transactions.count("jobs_running") == 0) Thread.sleep(1);
        db.close();
        if (Transactions.count("jobs_done") != done) throw new AssertionError("the close has waited for the job");
      }
    }
  }
}
