package org.rockmill;

import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.WeakHashMap;
import org.jspecify.annotations.Nullable;

/** Loads the native libraries from the jar, and finds those of RocksJava in this process. */
final class Loader {
  /** From this version on, RocksDB's library exports a C API that takes a compaction service. */
  private static final int FIRST_WITH_C_API = 10 << 16 | 10 << 8;

  private static final String FOLDER = "/META-INF/native/linux-x86_64/";

  /**
   * Stands in a shim for the path of RocksDB's library, which the linker of the system then looks functions up in. So
   * that library's names need not be made global, which would mix up two RocksDBs of one process. build.sh has it too.
   */
  private static final byte[] PLACE = "ROCKMILL-PATH-OF-ROCKSDB-".getBytes(StandardCharsets.US_ASCII);

  /** Length of the name that begins with {@link #PLACE}. */
  private static final int PLACE_BYTES = 1024;

  /** The error for options that have a service. shim.cpp says the same. */
  static final String ALREADY = "the options have a compaction service already";

  static final String PATHS =
      "the options have db_paths or cf_paths; Rockmill serves databases that have all files in their own folder";

  /**
   * Options with a service. From 10.10 on, RocksDB does not say whether options have one, so this set has to. The
   * objects are of any class loader.
   */
  private static final Set<Object> ATTACHED = Collections.newSetFromMap(new WeakHashMap<>());

  /** Classes whose closing of a database a shim extends. */
  private static final List<String> DATABASES = List.of("RocksDB", "TransactionDB", "OptimisticTransactionDB", "TtlDB");

  private static boolean isLoaded;

  /** Why the native part cannot be loaded on this system; null if it was loaded, or was not tried. */
  private static @Nullable String unsupported;

  /** Shims that are mapped, by the path of the library that they are for. */
  private static final Map<String, String> SHIMS = new HashMap<>();

  /** Libraries whose closing of databases a shim extends. */
  private static final Set<String> WATCHED = new HashSet<>();

  private Loader() {}

  /**
   * Loads the native part, once. Returns why there is none for this system; null if it is loaded.
   *
   * @throws RockmillException if it cannot be loaded for a reason that the user can change
   */
  static synchronized @Nullable String load() {
    if (isLoaded || unsupported != null) return unsupported;
    String system = System.getProperty("os.name", "");
    String machine = System.getProperty("os.arch", "").toLowerCase(Locale.ROOT);
    if (!system.equals("Linux") || !(machine.equals("amd64") || machine.equals("x86_64"))) {
      unsupported = "Rockmill runs on Linux on x86-64, and this is " + system + " on " + machine;
      return unsupported;
    }
    Path folder = temporaryFolder();
    List<Path> files = new ArrayList<>();
    try {
      // The second needs the first, and finds it beside itself.
      for (String name : Arrays.asList("librockmill.so.2", "librockmill_java.so")) {
        files.add(write(folder.resolve(name), resource(name)));
      }
      System.load(files.get(1).toString());
      isLoaded = true;
      return null;
    } catch (UnsatisfiedLinkError error) {
      String why = String.valueOf(error.getMessage());
      // With musl, functions or libraries of glibc are missing, under various names.
      if (Files.exists(Path.of("/lib/ld-musl-x86_64.so.1")) || why.contains("`GLIBC")) {
        unsupported = "Rockmill runs on systems with a glibc that is new enough (" + why + ")";
        return unsupported;
      }
      throw new RockmillException(
          "the native library in " + folder + " cannot be loaded (" + why + "); if that folder is"
              + " mounted noexec, name another one with -Drockmill.tmpdir=FOLDER",
          error);
    } finally {
      remove(folder, files);
    }
  }

  /**
   * Attaches a service to options, and notes them in {@link #ATTACHED}.
   *
   * <p>It knows options by reflection alone: RocksJava may be in a class loader that this class does not see.
   *
   * @param options {@code Options} or {@code DBOptions} of some RocksJava
   * @param families {@code ColumnFamilyDescriptor} of the database's column families, as far as they are known
   * @param folder the database's folder, null if it is not known
   */
  static synchronized void attach(long service, Object options, Collection<?> families, @Nullable String folder) {
    synchronized (ATTACHED) {
      if (ATTACHED.contains(options)) throw new RockmillException(ALREADY);
      try {
        Class<?> type = options.getClass();
        while (!type.getName().startsWith("org.rocksdb.")) type = type.getSuperclass();
        if (!(Boolean) get(options, "isOwningHandle")) {
          throw new RockmillException("the options are closed, or RocksJava only lends them");
        }
        check(options, families, folder, type.getClassLoader());
        Class<?> rocksdb = Class.forName("org.rocksdb.RocksDB", true, type.getClassLoader());
        String version = rocksdb.getMethod("rocksdbVersion").invoke(null).toString();
        clone(service, (Long) get(options, "getNativeHandle"), version, type.getClassLoader());
      } catch (ReflectiveOperationException error) {
        Throwable cause = error instanceof InvocationTargetException ? error.getCause() : error;
        throw new RockmillException("this RocksJava is older than 7.8, or unknown (" + cause + ")", cause);
      }
      ATTACHED.add(options);
    }
  }

  private static Object get(Object from, String name) throws ReflectiveOperationException {
    return from.getClass().getMethod(name).invoke(from);
  }

  /** Refuses options with which RocksDB could not move a job's files, or jobs would not read the database's own. */
  private static void check(
      Object options, Collection<?> families, @Nullable String folder, @Nullable ClassLoader loader)
      throws ReflectiveOperationException {
    if (hasPaths(options, families, folder)) throw new RockmillException(PATHS);
    Object env = get(options, "getEnv");
    Object usual = Class.forName("org.rocksdb.Env", true, loader).getMethod("getDefault").invoke(null);
    if (env != null && env != usual) {
      throw new RockmillException("the options have an Env of the program; Rockmill serves only RocksDB's default one");
    }
  }

  /**
   * Returns whether a database has paths elsewhere than in its folder. RocksDB stops writes if it cannot rename a file of a
   * job, which it cannot from one file system to another.
   */
  static boolean hasPaths(Object options, Collection<?> families, @Nullable String folder)
      throws ReflectiveOperationException {
    return areOthers((Collection<?>) get(options, "dbPaths"), folder)
        || hasPaths(List.of(options), folder)
        || hasPaths(families, folder);
  }

  /**
   * Returns whether an object is, or describes, options of column families with {@code cf_paths} elsewhere than in the
   * database's folder.
   */
  static boolean hasPaths(Collection<?> objects, @Nullable String folder) throws ReflectiveOperationException {
    for (Object object : objects) {
      if (object == null) continue;
      Object options = isA(object, "ColumnFamilyDescriptor") ? get(object, "getOptions") : object;
      if (!isA(options, "Options") && !isA(options, "ColumnFamilyOptions")) continue;
      if (areOthers((Collection<?>) get(options, "cfPaths"), folder)) return true;
    }
    return false;
  }

  /** The options of an open database name its own folder: RocksDB fills it in. */
  private static boolean areOthers(Collection<?> paths, @Nullable String folder) throws ReflectiveOperationException {
    for (Object path : paths) {
      Field field = path.getClass().getDeclaredField("path");
      field.setAccessible(true);
      if (folder == null || !absolute((Path) field.get(path)).equals(absolute(Path.of(folder)))) return true;
    }
    return false;
  }

  private static Path absolute(Path path) {
    return path.toAbsolutePath().normalize();
  }

  /** Returns whether an object has a class of some RocksJava. */
  static boolean isA(Object object, String name) {
    for (Class<?> type = object.getClass(); type != null; type = type.getSuperclass()) {
      if (type.getName().equals("org.rocksdb." + name)) return true;
    }
    return false;
  }

  private static void clone(long service, long options, String version, @Nullable ClassLoader loader)
      throws ReflectiveOperationException {
    int number = number(version);
    List<String> libraries = new ArrayList<>();
    for (String library : Native.libraries().split("\n")) {
      if (library.isEmpty()) continue;
      int found = Native.version(library);
      // They share static members of templates, whichever class loader has loaded them, and crash without Rockmill as well.
      if (found != 0 && found != number) {
        throw new RockmillException(
            "this process has two versions of RocksJava, " + version + " and another one in " + library
                + ", which do not work in one process");
      }
      if (found == number) libraries.add(library);
    }
    if (libraries.isEmpty()) {
      throw new RockmillException(
          "no library of RocksJava " + version + " is mapped under its own name (librocksdbjni..); Rockmill does not"
              + " know renamed ones");
    }
    RockmillException refused = null;
    for (String library : libraries) {
      try {
        String shim = number >= FIRST_WITH_C_API ? null : shim(library, version);
        Native.attach(service, options, library, shim);
        if (shim != null && WATCHED.add(library)) {
          List<Class<?>> databases = new ArrayList<>();
          for (String name : DATABASES) databases.add(Class.forName("org.rocksdb." + name, true, loader));
          Native.watchClose(shim, databases.toArray(new Class<?>[0]));
        }
        return;
      } catch (RockmillException error) {
        // With several class loaders, the options may be of another library of the same version.
        refused = error;
      }
    }
    throw refused;
  }

  private static int number(String version) {
    int number = 0;
    String[] parts = version.split("\\.");
    for (int at = 0; at < 3; ++at) number = number << 8 | Integer.parseInt(parts[at]);
    return number;
  }

  /** Returns a file with the shim for a version, whose functions of RocksDB are those of `library`. */
  private static String shim(String library, String version) {
    String known = SHIMS.get(library);
    if (known != null) return known;
    byte[] shim;
    try {
      shim = resource("rocksdb-" + version + ".so");
    } catch (RockmillException error) {
      throw new RockmillException(
          "Rockmill has no part for RocksJava " + version + "; it has parts for " + versions() + ", and serves 10.10"
              + " and newer without one");
    }
    byte[] path = library.getBytes(StandardCharsets.UTF_8);
    int place = find(shim, PLACE);
    if (place < 0 || path.length >= PLACE_BYTES) {
      throw new RockmillException("the path of RocksDB's library is too long: " + library);
    }
    System.arraycopy(path, 0, shim, place, path.length);
    shim[place + path.length] = 0;
    Path folder = temporaryFolder();
    Path file = write(folder.resolve("rocksdb-" + version + ".so"), shim);
    // It is removed when the process ends normally: it is opened by its path for the first of the options. The JVM
    // removes in the reverse order.
    folder.toFile().deleteOnExit();
    file.toFile().deleteOnExit();
    SHIMS.put(library, file.toString());
    return file.toString();
  }

  /** Returns the versions before 10.10 that the jar has shims for. */
  static String versions() {
    return new String(resource("versions"), StandardCharsets.UTF_8).trim().replace("\n", ", ");
  }

  private static int find(byte[] bytes, byte[] what) {
    for (int at = 0; at + PLACE_BYTES <= bytes.length; ++at) {
      if (Arrays.equals(bytes, at, at + what.length, what, 0, what.length)) return at;
    }
    return -1;
  }

  private static Path temporaryFolder() {
    String given = System.getProperty("rockmill.tmpdir");
    try {
      Path made =
          given != null
              ? Files.createTempDirectory(Path.of(given), "rockmill")
              : Files.createTempDirectory("rockmill");
      // The JVM loads no library by a relative path.
      return made.toAbsolutePath();
    } catch (IOException error) {
      throw new RockmillException(
          "no temporary folder can be made (" + error + "); name one with -Drockmill.tmpdir=FOLDER", error);
    }
  }

  private static byte[] resource(String name) {
    try (InputStream in = Loader.class.getResourceAsStream(FOLDER + name)) {
      if (in == null) throw new RockmillException("the jar of Rockmill lacks " + FOLDER + name);
      return in.readAllBytes();
    } catch (IOException error) {
      throw new RockmillException("the jar of Rockmill cannot be read (" + error + ")", error);
    }
  }

  private static Path write(Path file, byte[] bytes) {
    try {
      return Files.write(file, bytes);
    } catch (IOException error) {
      throw new RockmillException(file + " cannot be written (" + error + ")", error);
    }
  }

  /** The libraries stay mapped. */
  private static void remove(Path folder, List<Path> files) {
    List<Path> all = new ArrayList<>(files);
    Collections.reverse(all);
    all.add(folder);
    for (Path path : all) {
      try {
        Files.deleteIfExists(path);
      } catch (IOException error) {
        // It stays in the temporary folder.
      }
    }
  }
}
