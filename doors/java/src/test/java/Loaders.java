import java.io.File;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Runs a program in class loaders of their own, each with its own RocksJava and Rockmill: arguments are a folder, the program,
 * and the class path of each, with {@code :} between its files.
 */
public final class Loaders {
  public static void main(String[] arguments) throws Exception {
    List<Class<?>> programs = new ArrayList<>();
    for (int at = 2; at < arguments.length; ++at) {
      List<URL> files = new ArrayList<>();
      for (String file : arguments[at].split(":")) files.add(new File(file).toURI().toURL());
      ClassLoader loader = new URLClassLoader(files.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
      programs.add(Class.forName(arguments[1], true, loader));
      // All libraries are loaded before the first of the databases is opened.
      Class.forName("org.rocksdb.RocksDB", true, loader).getMethod("loadLibrary").invoke(null);
    }
    for (int at = 0; at < programs.size(); ++at) {
      String[] folder = {Path.of(arguments[0], "loader" + at).toString()};
      programs.get(at).getMethod("main", String[].class).invoke(null, (Object) folder);
    }
  }
}
