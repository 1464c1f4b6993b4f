import java.io.File;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * Runs a program in separate class loaders, each with its own Rockmill: arguments are a folder, the program, and the class
 * path of each, with {@code :} between its files. Each also has its own RocksJava, unless the class path has one.
 */
public final class Loaders {
  public static void main(String[] arguments) throws Exception {
    ClassLoader own = Loaders.class.getClassLoader();
    ClassLoader parent =
        own.getResource("org/rocksdb/RocksDB.class") == null ? ClassLoader.getPlatformClassLoader() : own;
    List<Class<?>> programs = new ArrayList<>();
    for (int at = 2; at < arguments.length; ++at) {
      List<URL> files = new ArrayList<>();
      for (String file : arguments[at].split(":")) files.add(new File(file).toURI().toURL());
      ClassLoader loader = new URLClassLoader(files.toArray(new URL[0]), parent);
      Class<?> program = Class.forName(arguments[1], true, loader);
      if (program.getClassLoader() != loader) throw new AssertionError("the class path has " + program);
      programs.add(program);
      // All libraries are loaded before the first of the databases is opened.
      Class.forName("org.rocksdb.RocksDB", true, loader).getMethod("loadLibrary").invoke(null);
    }
    for (int at = 0; at < programs.size(); ++at) {
      String[] folder = {Path.of(arguments[0], "loader" + at).toString()};
      programs.get(at).getMethod("main", String[].class).invoke(null, (Object) folder);
    }
  }
}
